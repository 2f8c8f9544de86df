"""The journal: append records to rolling data logs, and read them back by place.

Begin with `journal.py`, which appends and rolls. Three objects of the Journal do a part of that: `data_log_files.py`
makes and removes the files of data logs, `open_data_logs.py` has those that are open, to be read and synced, and
`fullness.py` says whether there is room for a record, with the space that `reserve.py` keeps for a full disk. Above the
Journal, `journal_syncer.py` brings it to the device, and `background_syncs.py` remembers a sync that goes on meanwhile.

`data_log.py` is one file of the journal, and walks over its records. `regions.py` fetches messages by their places.
`forward_reader.py` has the bytes and checksums for a search behind damage, and `scan.py` reads another process's
journal. Two small files stand beside the journal: `shutdown_marker.py` says which store the index belongs to and how
the last process ended, and `sync_mark.py` how far the device has the journal.
The bytes of a record are defined in `store/format/record.py`. docs/internals/store-journal.md says why.
"""
