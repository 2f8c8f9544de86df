"""Opening a store: replay after a crash, repair, quarantine and verification.

Read `opening.py` first, which opens a directory. Then read `recovery.py`, which makes an index that agrees with the
journal; `replay.py` applies each record to it. `repair.py` gives up damaged places if the host asked for that, and
`quarantine.py` keeps the damaged bytes. `verify.py` reads a journal that another process may own; it opens no store.
docs/internals/store-recovery.md gives the reasons.
"""
