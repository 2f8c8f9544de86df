"""Accounts for RAM, and decides how much of it each part may have.

`budget.py` is the ledger, and `shares.py` divides a memory limit. `message_cache.py` is the base of the caches; read
`pending_cache.py` and `head_queue_cache.py` next, then `message_memory.py`, which holds the accounts for the messages
of a destination. `spill` takes non-persistent messages for which RAM has no place. `curve.py` estimates the effect of
other limits. `process` watches the whole process. `dispatch/core/areas/reclaim.py`, a layer above, decides who gives
memory back, and in which order. docs/internals/overview.md shows how the layers meet.
"""
