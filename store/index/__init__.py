"""The index: which messages are pending in each lane, and where each one lies."""
