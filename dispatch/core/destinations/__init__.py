"""Queues by name and number, and for topics too: opening, closing, lanes, policies, and the charge in RAM."""
