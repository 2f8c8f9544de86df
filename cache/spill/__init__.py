"""Non-persistent overflow on its way from RAM to tmp-storage.

Read `overflow.py` first, which decides what waits and what is written. `buffer.py` has what waits, `account.py` pays
for the places of what was written. docs/internals/store-tmp.md says why.
"""
