"""Consumers that take together: the members of a consumer group, how they wait, and which messages they match."""
