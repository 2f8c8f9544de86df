"""Arrow kernels over data logs, independent of Spark.

Read `fleet.py` first, which plans the reads of many journals. Then read `batches.py`, which makes rows of them, from
record heads that `heads.py` decodes by columns. `schema.py` has the columns, `filters.py` the conditions. `checking.py`
and `checksums.py` verify the bytes. docs/internals/pipeline.md gives the reasons.
"""
