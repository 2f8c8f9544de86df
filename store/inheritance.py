"""Decorators for compiled classes from which users inherit. Only the compiler reads them: see machine-code.md.

This module stays interpreted. The compiler must find the name `mypyc_attr` here, and the interpreter must run without
mypyc.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T", bound=type)

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_: bool) -> Callable[[T], T]:
        """Return a decorator that leaves the class as it is."""
        return lambda kind: kind


def name_slots(dataclass: Any) -> None:
    """Make a compiled dataclass list its fields as slots, as an interpreted one with slots does.

    copy, pickle and a subclass that is a dataclass with slots read this list.
    """
    dataclass.__slots__ = tuple(field.name for field in fields(dataclass))
