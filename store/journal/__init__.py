"""The journal: append records to rolling data logs, read them back by place.

Read `journal.py` first: it appends, syncs and rolls. `data_log.py` is one file of it, `reading.py` fetches messages by
their places, and `forward_reader.py` and `scan.py` walk over records, behind damage too. Three small things stand
beside: `reserve.py` is space for a full disk, `marker.py` says whose index it is and how the last process ended, and
`sync_mark.py` how far the device has it. The bytes of a record are those of `store/format/record.py`.
docs/internals/store-journal.md says why.
"""
