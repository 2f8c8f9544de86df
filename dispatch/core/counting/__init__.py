"""Counters of destinations, open and closed."""
