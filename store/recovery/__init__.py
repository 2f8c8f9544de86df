"""Opening a store: replay after a crash, repair, quarantine and verification.

Read `opening.py` first, which opens a directory, and then `recovery.py`, which makes an index that agrees with the
journal; `replay.py` says what each record does to it. `repair.py` accepts what is damaged where the host asked for
that, and `quarantine.py` keeps the damaged bytes. `verify.py` reads a journal that somebody else may own, and opens
nothing. docs/internals/store-recovery.md says why.
"""
