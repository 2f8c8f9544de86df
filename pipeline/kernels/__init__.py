"""Arrow kernels over data logs, free of Spark.

Read `fleet.py` first, which says what of many journals is to be read; then `batches.py`, which makes it rows, from
record heads that `heads.py` takes apart by columns. `schema.py` has the columns, `filters.py` the conditions,
`checking.py` and `checksums.py` whether the bytes are whole. docs/internals/pipeline.md says why.
"""
