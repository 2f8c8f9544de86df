"""The journal appends records to rolling data logs and reads them back by their places.

Read `journal.py` first: it appends, syncs and rolls. `data_log.py` is one file of the journal, `reading.py` reads
messages by their places, and `forward_reader.py` and `scan.py` walk over records, even behind damage. Three small
modules stand beside: `reserve.py` keeps disk space for a full disk, `marker.py` tells whose index it is and how the
last process ended, and `sync_mark.py` tells how far the journal is on the device. `store/format/record.py` defines the
bytes of a record. docs/internals/store-journal.md gives the reasons.
"""
