"""Interruptions: an exception that comes out of wherever the interpreter looks for signals.

CPython 3.11 and later let a signal handler run, and raise what an asynchronous
exception left, where a Python function begins, behind each call of a C
function, and where a loop goes round. `interrupted` has an exception raised at
the first two kinds of places, counted, so that a test goes through all of them
one by one; real signals find the third kind too (tests/crash/test_interrupt_storm.py).

What the simulated disk does is left alone: a call of the system is done or not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import forebay

PACKAGE = str(Path(forebay.__file__).parent)
SUPPORT = str(Path(__file__).parent)


class Interruption(BaseException):
    """Raised by an interruption. Like KeyboardInterrupt, it passes `except Exception`."""


class _Interrupter:
    """Counts the places of one call, and raises Interruption at one of them."""

    def __init__(self, at: int) -> None:
        self.places = 0
        self._at = at
        self._inside_support = 0
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if name.startswith(SUPPORT):
            if event == "call":
                self._inside_support += 1
            elif event == "return":
                self._inside_support -= 1
            return
        if self._inside_support or event not in ("call", "c_return", "c_exception"):
            return
        self.places += 1
        if self.places == self._at:
            self.where = f"{name.rpartition('/')[2]}:{frame.f_lineno} {frame.f_code.co_name} ({event})"
            sys.setprofile(None)
            raise Interruption


def interrupted(call: Callable[[], object], at: int = 0) -> tuple[str, int]:
    """Interrupt a call at the at-th place, from 1 on; return where that was, "" if it was over before, and how many
    places the call came to. 0: at none.
    """
    interrupter = _Interrupter(at)
    before = sys.getprofile()
    sys.setprofile(interrupter)
    try:
        call()
    except Interruption:
        pass
    finally:
        sys.setprofile(before)
    return interrupter.where, interrupter.places
