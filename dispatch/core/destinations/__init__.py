"""Queues by name and number: how they are opened and closed, and what they are charged in RAM."""
