"""Consumers that take together: the members of a selector group, how they wait, and which messages they match."""
