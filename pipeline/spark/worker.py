"""Prepares a worker process of Spark, once, before its first task that reads a store."""

from __future__ import annotations

import gc
from functools import cache


@cache
def freeze_imports() -> None:
    """Exclude all imported objects from garbage collection.

    Spark collects after each task, which takes 45 ms with PyArrow, NumPy and pandas loaded: more than a small task
    takes.
    """
    import pandas  # noqa: F401  PyArrow would import it later, with the first array

    gc.freeze()
