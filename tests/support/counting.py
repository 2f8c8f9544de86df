"""Count costs as calls of functions or as instructions, because a clock would measure the machine."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import forebay

FOLDER = str(Path(forebay.__file__).resolve().parent)
TESTS = str(Path(__file__).resolve().parents[1])


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Count the calls of each function of the library in this thread, by name, with lambdas and generators."""
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


def opcodes(call: Callable[[], object]) -> int:
    """Return how many instructions of the interpreter a call takes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return count
