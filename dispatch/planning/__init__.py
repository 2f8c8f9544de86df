"""Recording of a store's traffic, playing it under other memory limits, and recommending a limit.

`recorder.py` writes a trace while a store works. `plan.py` plays a trace under several limits, and `lab.py` under
several rules about memory (`rules.py`) and beside a rule that knows the future (`clairvoyant.py`). Both use
`player.py`, which plays one event after the other. The files `played_*.py` stand in for the parts of a store that a
replay lacks. `report.py` and `picture.py` show the results. docs/internals/dispatch-planning.md says how far a replay
differs from a store.
"""
