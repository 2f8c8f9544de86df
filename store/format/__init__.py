"""Bytes on disk: how records, properties, times and states are encoded and decoded. No I/O.

Read `record.py` first, which has the frame of every record and the slice of messages; `decode.py` says what the payload
of each kind is. `properties.py` and `times.py` are what lies before a body, `state.py` what a new data log begins with.
docs/internals/on-disk-format.md has all of it in tables.
"""
