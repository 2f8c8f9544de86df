"""Makes all parts of an open store, does their background work, and tells of them.

`engine.py` is the composition root: read its constructor, which makes the parts from below to above, and then
`late_calls.py`, which has every call that goes the other way. `maintenance.py` does periodic work, each of its duties
(`duties.py`) when it is due, and `background.py` has the two threads. `resizing.py` and `auto_limit.py` change the
memory limit, `curve_watch.py` keeps the live curve. `reports.py` gathers what is told of a store: `statistics.py` has
the figures, `status.py` the file for other processes, `health.py` what is wrong. `ledger_audit.py` recomputes every
charge. docs/internals/overview.md says what each owner owns.
"""
