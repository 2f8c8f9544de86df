"""Deduplication: the ids that each producer sent last, so that what it sends again is not stored again.

An id counts as soon as its message does, and not before: they are in the same record of the journal. The state record
that opens each data log restates all windows, and so does the root of each checkpoint, so neither a crash nor the end
of a data log takes an id away whose message was stored. What the windows may take of RAM is bounded: beyond it the
producer that has been quiet for longest loses its window, and at last the only one its oldest ids.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ..account import Account, Unlimited
from ..format.identity import DIGEST_BYTES, Identity
from ..format.state import WindowIds

ID_CHARGE_BYTES: Final = 208
"""An id in RAM: its digest, its places in a set and a queue, and its part of a state record while that is made."""
WINDOW_CHARGE_BYTES: Final = 2_048
"""A window without ids."""
ROOM_BYTES: Final = 1 << 16
"""Memory that others are asked for at a time."""


class _Window:
    __slots__ = ("order", "known")

    def __init__(self) -> None:
        self.order: deque[bytes] = deque()
        self.known: set[bytes] = set()


class Deduplication:
    """The windows of a store: one for each producer and destination. The state lock guards it."""

    def __init__(
        self,
        account: Account | None = None,
        window_of: Callable[[str], int] = lambda name: 0,
        most_bytes: int = 0,
    ) -> None:
        """window_of: how many ids are kept for each producer of the destination of that name; 0: none.

        account: pays for them, up to most_bytes. None: nobody counts them.
        """
        self._account = account or Unlimited()
        self._window_of = window_of
        self._most_bytes = most_bytes
        self._held_bytes = 0
        self._sizes: dict[int, int] = {}
        self._windows: OrderedDict[tuple[int, bytes], _Window] = OrderedDict()
        self._undecided: dict[Identity, int] = {}
        self.make_room: Callable[[int], object] = lambda wanted_bytes: None
        """Asks others for memory."""

    # ------------------------------------------------------------------ what is known

    def register(self, destination: int, name: str) -> None:
        """Give the windows of a destination the size that its name asks for, from now on."""
        size = self._window_of(name)
        if size:
            self._sizes[destination] = size

    def watches(self, destination: int) -> bool:
        """Return whether ids sent there are kept at all."""
        return destination in self._sizes

    def knows(self, found: Identity) -> bool:
        """Return whether this message was stored already, as far back as the window goes."""
        key = found.destination, found.producer
        window = self._windows.get(key)
        if window is None:
            return False
        self._windows.move_to_end(key)
        return found.message in window.known

    def note(self, found: Identity) -> None:
        """Remember that this message is stored. Changes nothing where that is known."""
        size = self._sizes.get(found.destination, 0)
        if not size:
            return
        key = found.destination, found.producer
        window = self._windows.get(key)
        if window is None:
            if not self._reserve(WINDOW_CHARGE_BYTES, None):
                return
            window = self._windows[key] = _Window()
        else:
            self._windows.move_to_end(key)
        if found.message in window.known:
            return
        while len(window.order) >= size:
            self._drop_oldest(window)
        if not self._reserve(ID_CHARGE_BYTES, window):
            if not window.order:
                return
            self._drop_oldest(window)
            if not self._reserve(ID_CHARGE_BYTES, window):
                return
        window.order.append(found.message)
        window.known.add(found.message)

    def forget(self, destination: int) -> None:
        """Drop the windows of a destination that is gone. O(windows)."""
        self._sizes.pop(destination, None)
        for key in [key for key in self._windows if key[0] == destination]:
            self._drop(key)

    def clear(self) -> None:
        """Forget everything, as before a full replay."""
        for key in list(self._windows):
            self._drop(key)
        self._undecided.clear()
        self._sizes.clear()

    # ------------------------------------------------------------------ transactions

    def decides(self, found: Identity) -> int | None:
        """Return the number of the undecided transaction that has sent this message; None: there is none."""
        return self._undecided.get(found)

    def hold(self, identities: Iterable[Identity], number: int) -> None:
        """Leave it to a transaction whether these messages are stored. The transaction pays for them."""
        for found in identities:
            self._undecided[found] = number

    def let_go(self, identities: Iterable[Identity]) -> None:
        """Forget which transaction decides about these: it has an outcome."""
        for found in identities:
            self._undecided.pop(found, None)

    # ------------------------------------------------------------------ the journal's state

    def describe(self) -> list[WindowIds]:
        """Return all windows, the one that was used last at the end. O(ids)."""
        return [WindowIds(*key, b"".join(window.order)) for key, window in self._windows.items() if window.order]

    def restore(self, windows: Iterable[WindowIds]) -> None:
        """Replace all windows by these. REQUIRES: their destinations are registered."""
        for key in list(self._windows):
            self._drop(key)
        for destination, producer, ids in windows:
            for at in range(0, len(ids), DIGEST_BYTES):
                self.note(Identity(destination, producer, ids[at : at + DIGEST_BYTES]))

    # ------------------------------------------------------------------ memory

    def resize(self, most_bytes: int) -> None:
        """Let the windows take so much from now on; give up what is above it, from those that are quiet longest."""
        self._most_bytes = most_bytes
        self._shrink(most_bytes, None)

    @property
    def held_bytes(self) -> int:
        """Recomputed from what is there. O(windows)."""
        return sum(WINDOW_CHARGE_BYTES + ID_CHARGE_BYTES * len(window.order) for window in self._windows.values())

    def producers(self, destination: int) -> int:
        """Return how many producers have a window there; all that give no name are one. O(windows)."""
        return sum(1 for found, _ in self._windows if found == destination)

    @property
    def messages(self) -> int:
        """Number of ids that are known."""
        return sum(len(window.order) for window in self._windows.values())

    def _reserve(self, charge_bytes: int, but: _Window | None) -> bool:
        self._shrink(self._most_bytes - charge_bytes, but)
        if self._held_bytes + charge_bytes > self._most_bytes:
            return False
        if not self._account.reserve(charge_bytes):
            self.make_room(ROOM_BYTES)
            if not self._account.reserve(charge_bytes):
                return False
        self._held_bytes += charge_bytes
        return True

    def _shrink(self, to_bytes: int, but: _Window | None) -> None:
        """Drop the windows that were quiet for longest, but not that one."""
        for key in list(self._quiet(to_bytes, but)):
            self._drop(key)

    def _quiet(self, to_bytes: int, but: _Window | None) -> Iterator[tuple[int, bytes]]:
        held_bytes = self._held_bytes
        for key, window in self._windows.items():
            if held_bytes <= to_bytes:
                return
            if window is not but:
                held_bytes -= WINDOW_CHARGE_BYTES + ID_CHARGE_BYTES * len(window.order)
                yield key

    def _drop(self, key: tuple[int, bytes]) -> None:
        window = self._windows.pop(key)
        self._release(WINDOW_CHARGE_BYTES + ID_CHARGE_BYTES * len(window.order))

    def _drop_oldest(self, window: _Window) -> None:
        window.known.discard(window.order.popleft())
        self._release(ID_CHARGE_BYTES)

    def _release(self, charge_bytes: int) -> None:
        self._held_bytes -= charge_bytes
        self._account.release(charge_bytes)

    def _check(self) -> None:
        assert self._held_bytes == self.held_bytes <= max(self._most_bytes, 0)
        for (destination, _), window in self._windows.items():
            assert set(window.order) == window.known
            assert len(window.order) == len(window.known) <= self._sizes[destination]
