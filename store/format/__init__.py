"""Bytes on disk: encodes and decodes records, properties, times and states. It does no I/O.

Read `record.py` first: it has the frame of every record and the slice of messages. `decode.py` decodes the payload of
each kind. `properties.py` and `times.py` are the bytes before a body, `state.py` the record that begins a data log.
docs/internals/on-disk-format.md has tables of all formats.
"""
