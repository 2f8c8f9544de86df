"""What is said of a class of machine code that users inherit from. Only the compiler asks: see machine-code.md.

A module of its own, and interpreted, because the compiler must find its own name here and the interpreter must not
need it.
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
        """Return what returns the class as it is."""
        return lambda kind: kind


def name_slots(dataclass: Any) -> None:
    """Have a dataclass name its fields as slots, as an interpreted one with slots does.

    What copies and pickles, and a dataclass with slots that inherits from it, ask the class for them.
    """
    dataclass.__slots__ = tuple(field.name for field in fields(dataclass))
