"""Writes messages and finds them again: the journal, its index, and all that is done with files.

`directory_store.py` is where it begins: DirectoryStore makes all parts, opens and closes them. `message_store.py` adds,
acknowledges and reads messages. Read `journal/journal.py` next, which writes; then `index/index.py` and
`index/destination_lane.py`, which say what is pending and where it lies; then `recovery/opening.py`, which makes an
index that agrees with the journal. `format` has the bytes and `disk` the files for all of them. Consumers, memory
limits and policies are unknown here. docs/internals/overview.md follows a message through all of it.
"""
