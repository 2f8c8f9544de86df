"""Accounting for RAM: who has how much of it, and how much each may have.

`budget.py` is the one ledger, and `shares.py` divides a memory limit. `message_cache.py` is the common base of the
caches; then read `pending_cache.py`, `head_queue_cache.py`, and `message_memory.py`, the memory that the messages of a
destination are charged to. `spill` takes non-persistent messages for which RAM has no room. `curve.py` estimates the
effect of other limits. `process` watches the whole process. Who gives memory back, and in which order, is decided
above, in `dispatch/core/areas/reclaim.py`. docs/internals/overview.md explains the layers.
"""
