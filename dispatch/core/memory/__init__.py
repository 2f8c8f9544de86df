"""Which messages stay in RAM, how much each list and cache has, and which of them gives memory back first.

`watermarks.py` says how much each list may hold, and `reclaim.py` who gives back first. Both ask `memory_rule.py`,
which has what could be decided otherwise. `curve.py` estimates the hit ratio of other memory limits. Other rooms decide
other questions about memory: docs/internals/cache.md has a table of all ("Who decides what").
"""
