"""Admission: limits of destinations, senders that wait for room, and duplicate windows."""
