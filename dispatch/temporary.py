"""Temporary: what a temporary queue and a temporary topic have besides a queue and a topic: they end with their handle.

A crash leaves the destination to the next open, which deletes it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from .admin.temporaries import Temporaries
from .core.model import DestinationState
from .traits import trait


@trait
class Temporary:
    """A context manager: the destination is gone at the end of its block."""

    __slots__ = ()

    _destination: DestinationState

    @property
    @abstractmethod
    def _temporaries(self) -> Temporaries:
        """Return what makes and deletes them."""

    def close(self) -> None:
        """Delete the destination with all that is in it, as `delete` does. Twice is once.

        While a transaction without an outcome knows it it stays, and goes when that is decided. StoreFailed.
        """
        self._temporaries.release(self._destination.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
