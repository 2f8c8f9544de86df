"""DestinationRegistry: all queues, or all topics, of a store. Each is a row until it is used, and an object while open.

A new destination is one record in the journal. Its first use opens it. A destination that is empty and that nobody has
used for a while is closed again; its row and its counters remain. After a restart the same destinations exist, and
those in use are open.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar, Generic, TypeVar

from ....store.errors import Closed, StoreFailed
from ....store.format.destination_table import DestinationTable
from ....store.writers.destination_writer import DestinationWriter
from ...config.temporary_names import raise_if_temporary
from ..confirmer import Confirmer
from ..model.lifecycle import Lifecycle
from ..monitor import Monitor
from .closable_destinations import IdleCloser
from .destination_opener import DestinationOpener
from .destination_state import NamedDestinationState

DestinationT = TypeVar("DestinationT", bound=NamedDestinationState)


class DestinationRegistry(IdleCloser, Generic[DestinationT]):
    """Makes, finds, opens, closes and forgets destinations of one kind. The state lock guards it."""

    kind: ClassVar[int]
    """QUEUE or TOPIC."""
    open_bytes: ClassVar[int]
    """Charged for an open destination, in addition to its row."""

    def __init__(
        self,
        monitor: Monitor,
        writer: DestinationWriter,
        rows: DestinationTable,
        opener: DestinationOpener,
    ) -> None:
        """Make the registry. rows: all queues and topics, open or not. opener: charges and closes both kinds."""
        self._monitor = monitor
        self._writer = writer
        self._rows = rows
        self._opener = opener
        # Open destinations by name.
        self.by_name: dict[str, DestinationT] = {}
        # Open destinations by number.
        self.by_number: dict[int, DestinationT] = {}

    # ------------------------------------------------------------------ what each kind does in its own way

    @abstractmethod
    def _make(self, number: int, name: str) -> DestinationT:
        """Return a new object for an existing destination."""

    @abstractmethod
    def create(self, name: str, *, is_temporary: bool = False) -> DestinationT:
        """Record a new destination, which is not synced yet, and return its open state. StoreFull.

        Requires: the lock, and that no destination of this kind has the name.
        """

    # ------------------------------------------------------------------ names and numbers

    @property
    def count(self) -> int:
        """Number of destinations of this kind, open or not."""
        return self._rows.count(self.kind)

    def names(self) -> list[str]:
        """Return the names of all destinations of this kind, sorted. Requires: the lock."""
        return self._rows.names(self.kind)

    def numbers(self) -> list[int]:
        """Return the numbers of all destinations of this kind, sorted by name. Requires: the lock."""
        return self._rows.numbers(self.kind)

    def exists(self, name: str) -> bool:
        """Return whether a destination of this kind has the name. Requires: no lock."""
        with self._monitor.lock:
            return self._rows.number_of(self.kind, name) is not None

    def has(self, destination_number: int) -> bool:
        """Return whether a destination of this kind has the number. Requires: the lock."""
        known = self._rows.get(destination_number)
        return known is not None and known.kind == self.kind

    # ------------------------------------------------------------------ opening

    def open_or_create(self, name: str, confirmer: Confirmer) -> DestinationT:
        """Open the destination of a name, or record a new one in the journal; return its state. Requires: no lock.

        Closed: the store is closed, or the name is that of a temporary destination that is gone. StoreFull.
        """
        self._monitor.raise_if_closed()
        destination = self.by_name.get(name)
        if destination is not None:
            return destination
        with self._monitor.lock, self._monitor.while_open:
            if self._rows.number_of(self.kind, name) is None:
                raise_if_temporary(name)
            destination = self.ensure(name)
            journal_end = confirmer.journal_end
        confirmer.confirm(journal_end)
        return destination

    def ensure(self, name: str) -> DestinationT:
        """Open the destination of a name, or record a new one, which may not be synced yet; return its state.

        Requires: the lock. StoreFull: memory has no room for it.
        """
        destination = self.by_name.get(name)
        if destination is not None:
            return destination
        number = self._rows.number_of(self.kind, name)
        return self.create(name) if number is None else self.open_numbered(number)

    def open_numbered(self, destination_number: int) -> DestinationT:
        """Open the existing destination of a number. Requires: the lock. StoreFull: memory has no room for it."""
        destination = self.by_number.get(destination_number)
        if destination is None:
            name = self._rows[destination_number].name
            with self._opener.charge_one(self.open_bytes):
                destination = self._add(destination_number, name)
            self._opener.restore_counts(destination)
        return destination

    def open_to_delete(self, destination_number: int) -> DestinationT:
        """Open the existing destination of a number for a caller that deletes it. Requires: the lock.

        Full memory does not refuse this, because the deletion frees more than the object takes.
        """
        destination = self.by_number.get(destination_number)
        if destination is None:
            name = self._rows[destination_number].name
            self._opener.charge_or_owe(self.open_bytes)
            destination = self._add(destination_number, name)
            self._opener.restore_counts(destination)
        return destination

    def _add(self, number: int, name: str) -> DestinationT:
        made = self.by_name[name] = self.by_number[number] = self._make(number, name)
        self._opener.set_up(made, self)
        return made

    # ------------------------------------------------------------------ one that a caller knows

    def current(self, known: DestinationT) -> DestinationT:
        """Return the open state for one that a caller knows, opened again if it was closed. Requires: no lock.

        If the destination was deleted as inactive, return the one that has its name now, if there is one. StoreFull.
        """
        if not known.is_reopenable:
            return known
        with self._monitor.lock, self._monitor.all_or_broken:
            return self._current(known)

    def _current(self, known: DestinationT) -> DestinationT:
        number = self._number_now(known)
        return known if number is None else self.open_numbered(number)

    def _number_now(self, known: DestinationT) -> int | None:
        """Return the number of the destination that now has the name of one that was closed or deleted as inactive.

        None: no destination has it, or `known` is still open, or a caller has deleted it. Requires: the lock.
        """
        if not known.is_reopenable:
            return None
        if known.lifecycle is Lifecycle.CLOSED and known.number in self._rows:
            return known.number
        # If it can't become inactive, a caller deleted it.
        was_deleted = known.lifecycle is Lifecycle.CLOSED and known.inactive_seconds is None
        return None if was_deleted else self._rows.number_of(self.kind, known.name)

    @contextmanager
    def held_open(self, known: DestinationT, *, is_to_go: bool = False) -> Iterator[DestinationT]:
        """Keep a destination open while a call works with it. Requires: no lock. StoreFull.

        is_to_go: the call deletes the destination, so it is opened even if memory is full.
        """
        with self._monitor.lock, self._monitor.all_or_broken:
            number = self._number_now(known)
            held = known
            if number is not None:
                held = self.open_to_delete(number) if is_to_go else self.open_numbered(number)
            held.begin_call()
        try:
            yield held
        finally:
            self._release(held)

    @contextmanager
    def held_reopened(self, known: DestinationT, confirmer: Confirmer) -> Iterator[DestinationT]:
        """Keep a destination open as held_open does; make it anew if it was deleted as inactive.

        Closed: a caller has deleted the destination. StoreFull. Requires: no lock.
        """
        with self._monitor.lock, self._monitor.while_open:
            held = self._current(known)
            is_new = held.is_reopenable
            if is_new:
                if known.lifecycle is Lifecycle.CLOSED and known.inactive_seconds is None:
                    raise Closed(f"the {known.noun}")
                raise_if_temporary(known.name)
                held = self.create(known.name)
            held.begin_call()
            journal_end = confirmer.journal_end
        try:
            if is_new:
                confirmer.confirm(journal_end)
            yield held
        finally:
            self._release(held)

    def _release(self, held: DestinationT) -> None:
        """End the hold of a call on a destination, so that it may be closed again. Requires: no lock."""
        # An error of the call matters more than an error of the release.
        with suppress(StoreFailed), self._monitor.lock:
            held.end_call()

    # ------------------------------------------------------------------ reports, which open nothing

    def for_report(self, known: DestinationT) -> DestinationT:
        """Return the state to report for a destination that a caller knows, open or closed. Requires: the lock."""
        number = self._number_now(known)
        return known if number is None else self.numbered_for_report(number) or known

    def named_for_report(self, name: str) -> DestinationT | None:
        """Return the state to report for a name; None if no destination has the name. Requires: the lock."""
        number = self._rows.number_of(self.kind, name)
        return None if number is None else self.numbered_for_report(number)

    def numbered_for_report(self, destination_number: int) -> DestinationT | None:
        """Return the state to report for a number; None if the destination is deleted. Requires: the lock.

        For a closed destination this is a separate object, which only the report uses.
        """
        destination = self.by_number.get(destination_number)
        if destination is None and (known := self._rows.get(destination_number)) is not None:
            destination = self._make(destination_number, known.name)
            self._opener.describe(destination)
        return destination

    def closed_for_report(self) -> Iterator[DestinationT]:
        """Yield the state to report for each closed destination, sorted by name. Requires: the lock."""
        for number in self.numbers():
            if number not in self.by_number and (destination := self.numbered_for_report(number)) is not None:
                yield destination

    # ------------------------------------------------------------------ closing and deleting

    def close_idle(self, opened: DestinationT, undecided: Container[int]) -> bool:
        """Close a destination if nothing but its counters would be lost; return whether it was closed.

        undecided: numbers of destinations with messages in transactions without an outcome. Requires: the lock.
        """
        if not self._opener.can_close(opened, undecided):
            return False
        del self.by_name[opened.name], self.by_number[opened.number]
        self._opener.close(opened, self.open_bytes)
        return True

    def close_named(self, name: str, undecided: Container[int]) -> bool:
        """Close the destination of a name, as close_idle does. Requires: the lock, and that it is open."""
        return self.close_idle(self.by_name[name], undecided)

    def remove(self, deleted: DestinationT) -> None:
        """Forget a deleted destination, so that messages sent to it no longer arrive. Requires: the lock."""
        del self.by_name[deleted.name], self.by_number[deleted.number]
        self._opener.forget(deleted, self.open_bytes)
