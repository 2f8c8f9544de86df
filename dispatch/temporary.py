"""Temporary: the common part of temporary queues and topics, which end with their handle.

After a crash the next open deletes the destination.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from ..store.compiler import trait
from .admin.temporaries import TemporaryDestinations
from .core.destinations.destination_state import NamedDestinationState


@trait
class Temporary:
    """A context manager that deletes the destination at the end of its block."""

    __slots__ = ()

    _destination: NamedDestinationState

    @property
    @abstractmethod
    def _temporaries(self) -> TemporaryDestinations:
        """The owner of temporary destinations."""

    def close(self) -> None:
        """Delete the destination with everything in it, as `delete` does. A second call does nothing.

        While a transaction without an outcome knows it, it stays, and is deleted afterwards. StoreFailed.
        """
        self._temporaries.release(self._destination.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
