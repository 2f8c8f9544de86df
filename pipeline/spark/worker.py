"""Prepares a worker process of Spark, once, before its first task that reads a store."""

from __future__ import annotations

import gc
from functools import cache


@cache
def freeze_imports() -> None:
    """Let the garbage collector pass over all that is imported.

    Spark collects behind each task, which takes 45 ms with PyArrow, NumPy and pandas loaded: more than a small task
    takes.
    """
    import pandas  # noqa: F401  PyArrow would with the first array, behind this

    gc.freeze()
