"""Accounting for RAM: who has how much of it, and how much each may have.

Start with `accounting/budget.py`, the one ledger. `sharing` divides a memory limit and estimates the effect of other
limits. `messages` has the caches, and the memory that the messages of a destination are charged to. `spill` takes
non-persistent messages for which RAM has no room. `process` watches the whole process. The policy of the caches is
above: `MemoryRule` in `dispatch/core/memory_rule.py` says which message is kept and who has how much (others to compare
with it are in `dispatch/planning/rules.py`), `dispatch/core/reclaim.py` who gives memory back in which order.
docs/internals/overview.md explains the layers.
"""
