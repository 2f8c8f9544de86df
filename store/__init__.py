"""The store writes messages to a journal and finds them again by an index. It does all work with files.

Start with `store_opener.py`, which opens a DirectoryStore, and `directory_store.py`: it makes all parts and closes
them. `message_store.py` adds, acknowledges and reads messages. Then read `journal/journal.py`, which writes the
records; `index/index.py` and `index/destination_lane.py`, which know the pending messages and their places; and
`recovery/opening.py`, which makes an index that agrees with the journal. All of them use `format` for the bytes and
`disk` for the files. `state` is what the journal tells, `writers` change it, `checkpoint` writes it to the index on
disk, and `maintenance` gives disk space back. The store knows nothing of consumers, memory limits and policies.
docs/internals/overview.md follows a message through it.
"""
