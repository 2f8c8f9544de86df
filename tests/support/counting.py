"""Costs are counted, in calls of functions: a clock would judge the machine."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import forebay

FOLDER = str(Path(forebay.__file__).resolve().parent)
TESTS = str(Path(__file__).resolve().parents[1])


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """How often this thread calls each function of the library, by its name; lambdas and generators count too."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        filename = frame.f_code.co_filename
        if event == "call" and filename.startswith(FOLDER) and not filename.startswith(TESTS):
            calls[frame.f_code.co_qualname] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)
