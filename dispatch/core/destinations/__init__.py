"""Queues and topics: how they are found, opened and closed, and their lanes, policies and charges."""
