"""Whether a destination is open, paused or in use, and what it counts."""
