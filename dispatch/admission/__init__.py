"""Who may send now: limits of destinations, waiting senders, deduplication, overhead charges."""
