"""Which messages stay in RAM, how much each list and cache has, and which of them gives memory back first.

Begin with `memory_rule.py`, which decides. `watermarks.py` carries out its decisions about lists, and `reclaim.py`
those about giving back. `curve.py` estimates the hit ratio of other memory limits. The arithmetic of a limit is in
`cache/accounting/shares.py`.
"""
