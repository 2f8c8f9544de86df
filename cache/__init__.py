"""Accounting for RAM: who has how much of it, and how much each may have.

Start with `accounting/budget.py`, the one ledger. `shares.py` divides a memory limit. `messages` has the caches, and
the memory that the messages of a destination are charged to. `spill` takes non-persistent messages for which RAM has
no room. `process` watches the whole process. Here is the mechanism. The policy of memory is above, in
`dispatch/core/memory`: which message is kept, and who gives back first. Others to compare with it are in
`dispatch/planning/rules.py`.
docs/internals/overview.md explains the layers.
"""
