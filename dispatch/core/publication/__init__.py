"""The way from a written message to one that consumers see: the sync that it may wait for, and its publication."""
