"""The journal: append records to rolling data logs, and read them back by place.

Begin with `journal.py`, which appends, syncs and rolls. `data_log.py` is one file of the journal. `regions.py` fetches
messages by their places. `forward_reader.py` and `scan.py` walk over records, behind damage too. Three small files
stand beside them: `reserve.py` is space for a full disk, `shutdown_marker.py` says which store the index belongs to and
how the last process ended, and `sync_mark.py` says how far the device has the journal. The bytes of a record are
defined in `store/format/record.py`. docs/internals/store-journal.md says why.
"""
