"""Accounting for RAM: who has how much of it, and how much each may have.

Start with `accounting/budget.py`, the one ledger; `accounting/shares.py` divides a memory limit. `messages` has the
caches, and the memory that the messages of a destination are charged to. `spill` takes non-persistent messages for
which RAM has no room. `process` watches the whole process. Each cache decides what it admits and which message leaves
first. What concerns all of them is decided above, in `dispatch/core/memory`: the shares, by the functions of
`accounting/shares.py`, the watermarks of lists, and the order in which memory is given back. Other rules are in
`dispatch/planning/rules.py`. docs/internals/overview.md explains the layers.
"""
