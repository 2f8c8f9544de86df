"""Queues by name and number; and for queues and topics, how they open and close, their lanes, policies and charges."""
