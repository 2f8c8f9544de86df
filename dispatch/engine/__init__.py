"""Makes all parts of an open store, runs their background work, and reports on them.

`engine.py` is the composition root. Read its constructor first, which makes the parts from the lowest to the highest;
then `late_calls.py`, which has every call in the other direction. `maintenance.py` does periodic work, each of its
duties (`duties.py`) when it is due, and `background.py` has the two threads. `resizing.py` and `auto_limit.py` change
the memory limit, `curve_watch.py` keeps the live curve. `reports.py` gathers all reports on a store: `statistics.py`
has the figures, `status.py` writes the file for other processes, `health.py` lists problems. `ledger_audit.py`
recomputes every charge. docs/internals/overview.md lists what each owner owns.
"""
