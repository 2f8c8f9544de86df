"""Accounts for RAM, and decides who may have how much of it.

`budget.py` is the one ledger, and `shares.py` says what a memory limit is divided into. `message_cache.py` is what the
caches have in common; read `pending_cache.py` and `head_queue_cache.py` next, then `message_memory.py`, which says what
the messages of a destination are charged to. `spill` takes non-persistent messages that RAM has no place for,
`curve.py` says what another limit would bring, `process` looks at the process as a whole. Who gives memory back, and in
which order, is decided above, in `dispatch/core/areas/reclaim.py`. docs/internals/overview.md says how the floors meet.
"""
