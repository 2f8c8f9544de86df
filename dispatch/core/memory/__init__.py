"""Which messages stay in RAM, who has how much, and who gives back first. Another rule for that goes here.

Begin with `memory_rule.py`, which decides. `watermarks.py` carries out what it says of lists, `reclaim.py` what it says
of giving back, and `curve.py` tells what another limit would bring. The arithmetic of a limit is in
`cache/accounting/shares.py`.
"""
