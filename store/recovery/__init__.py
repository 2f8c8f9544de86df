"""Opening a store: replay after a crash, repair, quarantine and verification.

Begin with `opening.py`, which opens a directory, and then read `recovery.py`, which makes an index that agrees with the
journal. `replay.py` applies each record. If the host accepts damage, `repair.py` repairs it and `store/quarantine.py`
keeps the damaged bytes. `verify.py` reads a journal that another process may own, and opens nothing.
docs/internals/store-recovery.md says why.
"""
