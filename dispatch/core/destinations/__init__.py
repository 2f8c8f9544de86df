"""Queues by name and number: opening and closing them, and what they cost in RAM."""
