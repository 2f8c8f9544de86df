"""The overflow of non-persistent messages on its way from RAM to tmp-storage.

Begin with `overflow.py`, which decides what waits and what is written. `spill_buffer.py` has the waiting messages, and
`spill_account.py` pays for the places of written ones. docs/internals/store-tmp.md says why.
"""
