"""Bytes on disk: encode and decode records, properties, times and states. No I/O.

Begin with `record.py`, which has the header of every record, slices and acks. `decode.py` decodes the payload of each
kind, whose bytes are in the file of its noun: `return_record.py`, `seek_record.py`, `branch.py` and so on.
`message_properties.py` and `times.py` define the bytes before a body, `state_record.py` what a new data log begins
with. docs/internals/on-disk-format.md has all of it in tables.
"""
