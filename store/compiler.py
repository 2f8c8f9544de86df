"""Decorators and notes of classes that only the compiler reads (see machine-code.md).

`mypyc_attr`: users may inherit from the class. `trait`: classes inherit from it beside their one base.

This module is interpreted and separate, because the compiler must find its own names here, and the interpreter must not
need mypyc.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T", bound=type)

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
    from mypy_extensions import trait as trait
else:

    def mypyc_attr(**_: bool) -> Callable[[T], T]:
        """Return a decorator that returns the class unchanged."""
        return lambda kind: kind

    def trait(kind: T) -> T:
        """Return the class as it is."""
        return kind


def name_slots(dataclass: Any) -> None:
    """Make a dataclass name its fields as slots, as an interpreted dataclass with slots does.

    Copying, pickling, and a dataclass with slots that inherits from it ask the class for these names.
    """
    dataclass.__slots__ = tuple(field.name for field in fields(dataclass))
