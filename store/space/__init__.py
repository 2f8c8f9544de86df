"""Disk space of an open store: how much it holds, why its data logs remain, and giving back what nothing needs."""
