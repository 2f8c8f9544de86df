"""Bytes on disk: how records, properties, times and states are encoded and decoded. No I/O."""
