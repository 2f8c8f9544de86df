"""The engine: makes all parts of an open store, does their background work, and reports on them.

`engine.py` is the composition root: its constructor has `assembly` make the parts, layer by layer from below to above.
Then read `upcalls.py`, which has every call from below to above. `task_runner.py` runs the periodic tasks
(`periodic_tasks.py`), some of which are classes of their own (`tasks.py`). `background.py` has the two threads.
`resizing.py`, `index_fit.py` and `auto_limit.py` change the memory limit, and `curve_watch.py` keeps the live curve.
`reports.py` gathers reports (`destination_reports.py`, `memory_reports.py`): `statistics.py` has the figures,
`status.py` what `status_file.py` writes for other processes, and `health.py` the problems. `ledger_audit.py` recomputes
every charge. docs/internals/dispatch-engine.md has a table of the layers.
"""
