"""`trait`: marks a class from which others inherit beside their one base.

Only the compiler reads it; see machine-code.md.

This module is interpreted and separate, because the compiler must find its own name here, and the interpreter must not
need mypyc.
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
