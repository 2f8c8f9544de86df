"""Maintenance of the journal: cleanup, archive, leases and relocation, and how much there is on disk (`disk_use.py`).

`cleanup.py` runs all of it for an open store, and `data_log_retention.py` asks why a data log of that store remains.
Read `data_log_remover.py` first: it deletes or archives (`archive.py`) what nothing needs (`removable.py`).
`retention_reasons.py` tells why a data log remains; `leases.py` and `trimmer.py` are about two of the reasons. Then
read `relocation.py`, which copies live messages out of sparse data logs. Its parts choose the data log
(`relocation_plan.py`), find the messages (`relocation_scan.py`, `live_search.py`), copy them (`live_copying.py`,
`prepared_moving.py`) or name them (`survivor_naming.py`), limit speed (`throttle.py`) and leave some data logs alone
(`drain_forecast.py`). `relocation_work.py` has what these share. docs/internals/store-maintenance.md gives the reasons.
"""
