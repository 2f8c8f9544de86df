"""Accounting for RAM: who has how much of it, and how much each may have.

Start with `accounting/budget.py`, the one ledger; `accounting/shares.py` divides a memory limit. `messages` has the
caches, and the memory that the messages of a destination are charged to. `spill` takes non-persistent messages for
which RAM has no room. `process` watches the whole process. Each cache decides what it admits and which message leaves
first. What concerns lists is decided above: docs/internals/cache.md says where each question is decided. Other rules
are in `dispatch/planning/rules.py`. docs/internals/overview.md explains the layers.
"""
