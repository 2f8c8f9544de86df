"""What a test can't ask of machine code (`make test INSTALL=compiled`), and how it says so.

Compiled code asks no one for what it has linked: a method or a constant that
a test puts in the place of another is not seen, and what is set on an object
is refused. An argument of another type than declared is refused at the door,
by TypeError instead of SettingsError. Nobody can inherit from a compiled class.
"""

from __future__ import annotations

import re
from types import TracebackType

import pytest

from forebay.dispatch.producer import sender

IS_COMPILED = not str(sender.__file__).endswith(".py")

interpreted = pytest.mark.skipif(IS_COMPILED, reason="asks for what only the interpreter does")

_REPLACED = re.compile(r"object attribute '\w+' is read-only|interpreted classes cannot inherit from compiled")
_REFUSED = re.compile(r"object expected; got ")


def excuse(failure: BaseException, *, patches: bool) -> str | None:
    """Why a test that failed says nothing of compiled code; None: it does. patches: it puts something in a place."""
    text = str(failure)
    if not IS_COMPILED:
        return None
    if isinstance(failure, AttributeError | TypeError) and _REPLACED.search(text):
        return text
    if isinstance(failure, TypeError) and _REFUSED.search(text) and _is_raised_at_the_door(failure.__traceback__):
        return text
    return "puts something in a place that is linked" if patches else None


def _is_raised_at_the_door(traceback: TracebackType | None) -> bool:
    """The test itself made the call that was refused; the setter of a property leaves no trace."""
    inside = 0
    while traceback is not None:
        inside = inside + 1 if _is_product(traceback) else 0
        traceback = traceback.tb_next
    return inside <= 1


def _is_product(traceback: TracebackType) -> bool:
    return bool(re.match(r"(.*/)?forebay/(store|cache|dispatch)/", traceback.tb_frame.f_code.co_filename))
