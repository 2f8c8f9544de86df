"""`trait`: marks a class that others inherit from beside their one base. Only the compiler asks: see machine-code.md.

A module of its own, and interpreted, because the compiler must find its own name here and the interpreter must not
need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

T = TypeVar("T", bound=type)

if TYPE_CHECKING:
    from mypy_extensions import trait as trait
else:

    def trait(kind: T) -> T:
        """Return the class as it is."""
        return kind
