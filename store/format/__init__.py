"""Bytes on disk: encode and decode records, properties, times and states. No I/O.

Begin with `record.py`, which has the frame of every record and the slice of messages; `decode.py` has the payload of
each kind. `message_properties.py` and `times.py` define the bytes before a body, `state_record.py` what a new data log
begins with. docs/internals/on-disk-format.md has all of it in tables.
"""
