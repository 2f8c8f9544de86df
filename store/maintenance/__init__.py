"""Maintenance of the journal: cleanup, archive, leases and relocation.

Read `cleaner.py` first, which deletes or archives (`archive.py`) the data logs that `removable.py` finds nothing needs.
`retention_reasons.py` says why one stays, `leases.py` and `trimmer.py` are two such reasons. Then `relocation.py`,
which copies what is live out of sparse data logs: which one (`relocation_plan.py`), what of it
(`relocation_scan.py`, `prepared.py`), how fast (`throttle.py`), and when not (`draining.py`).
docs/internals/store-maintenance.md says why.
"""
