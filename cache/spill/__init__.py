"""Non-persistent overflow on its way from RAM to tmp-storage.

Read `overflow.py` first: it decides which messages wait and which are written. `buffer.py` has the waiting messages,
`account.py` pays for the places of written ones. docs/internals/store-tmp.md gives the reasons.
"""
