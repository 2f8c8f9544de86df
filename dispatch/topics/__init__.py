"""Topics, durable subscriptions, fan-out and eviction."""
