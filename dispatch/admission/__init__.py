"""Which messages a destination accepts: its limits, the senders that wait for room, and duplicate windows."""
