"""Deduplication: the last ids of each producer, so that a message that is sent a second time is not stored again.

A *window* has the last ids of one producer to one destination. An id takes effect together with its message, because
both are in the same record. The state record that opens each data log restates all windows, and so does the root of
each checkpoint. So neither a crash nor the deletion of a data log loses the id of a stored message. The windows have a
memory limit. At the limit, the oldest ids of all producers are forgotten first, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from ..environment.account import Account, Unlimited
from ..format.identity import DIGEST_BYTES, Identity
from ..format.state_record import WindowIds
from .digest_queue import MASK, DigestQueue

ID_CHARGE_BYTES: Final = 32
"""Charge of an id: its digest, its stamp, and its entry in the index of a DigestQueue."""
WINDOW_CHARGE_BYTES: Final = 1_024
"""Charge of a window without ids."""
ROOM_BYTES: Final = 1 << 16
"""Bytes that other holders of memory are asked to free at a time."""
PIECE_IDS: Final = 256
"""How many ids of one producer a state record has in a row. Then come ids of other producers from the same time."""


class _Window:
    __slots__ = ("key", "ids", "is_gone")

    def __init__(self, key: tuple[int, bytes]) -> None:
        self.key = key
        self.ids = DigestQueue()
        self.is_gone = False


class Deduplication:
    """The windows of a store, one for each producer and destination. The state lock guards it."""

    def __init__(
        self,
        account: Account | None = None,
        window_of: Callable[[str], int] = lambda name: 0,
        limit_bytes: int = 0,
        make_room: Callable[[int], object] = lambda wanted_bytes: None,
    ) -> None:
        """Make it without windows.

        account: pays for the ids, up to limit_bytes; None: they are not counted.
        window_of: returns how many ids are kept for each producer of a destination of that name; 0: none.
        make_room: asks other holders to free that many bytes of memory.
        """
        self._make_room = make_room
        self._account = account or Unlimited()
        self._window_of = window_of
        self.limit_bytes = limit_bytes
        self._held_bytes = 0
        self._sizes: dict[int, int] = {}
        self._windows: dict[tuple[int, bytes], _Window] = {}
        # Number of ids that were ever noted, which orders them by age.
        self._noted = 0
        # A heap with an entry for each window. No id of the window is older than its entry. Some entries are of windows
        # that are gone.
        self._oldest: list[tuple[int, int, _Window]] = []
        self._entries = 0
        # Number of ids that were forgotten or not remembered for want of memory, although their window was not full.
        self.forgotten = 0
        # The number of the transaction that will decide whether a message is stored.
        self._undecided: dict[Identity, int] = {}

    # ------------------------------------------------------------------ windows and ids

    def register(self, destination_number: int, name: str) -> None:
        """Give the windows of a destination the size that the policy of its name asks for."""
        size = self._window_of(name)
        if size:
            self._sizes[destination_number] = size

    def watches(self, destination_number: int) -> bool:
        """Return whether ids of messages to this destination are kept at all."""
        return destination_number in self._sizes

    def has_seen(self, sent: Identity) -> bool:
        """Return whether this message was stored already, as far back as the window reaches."""
        window = self._windows.get((sent.destination, sent.producer))
        return window is not None and window.ids.has(sent.message)

    def remember(self, sent: Identity) -> None:
        """Remember that this message is stored. A second call changes nothing."""
        size = self._sizes.get(sent.destination, 0)
        if not size:
            return
        key = sent.destination, sent.producer
        window = self._windows.get(key)
        if window is not None:
            if window.ids.has(sent.message):
                return
            while len(window.ids) >= size:
                self._drop_oldest(window)
        elif self._reserve(WINDOW_CHARGE_BYTES, None):
            window = self._windows[key] = _Window(key)
            self._push(self._noted, window)
        if window is None or not self._reserve(ID_CHARGE_BYTES, window):
            if window is not None and not len(window.ids):
                self._drop(key)
            self.forgotten += 1
            return
        window.ids.append(sent.message, self._noted)
        self._noted += 1

    def forget(self, destination_number: int) -> None:
        """Drop the windows of a deleted destination. O(windows)."""
        self._sizes.pop(destination_number, None)
        for key in [key for key in self._windows if key[0] == destination_number]:
            self._drop(key)

    def clear(self) -> None:
        """Forget everything, before a full replay."""
        for key in list(self._windows):
            self._drop(key)
        self._undecided.clear()
        self._sizes.clear()

    # ------------------------------------------------------------------ transactions

    def deciding_transaction(self, sent: Identity) -> int | None:
        """Return the number of the undecided transaction that has sent this message. None: there is none."""
        return self._undecided.get(sent)

    def hold_undecided(self, identities: Iterable[Identity], number: int) -> None:
        """Note that a transaction will decide whether these messages are stored. The transaction pays for the ids."""
        for sent in identities:
            self._undecided[sent] = number

    def forget_undecided(self, identities: Iterable[Identity]) -> None:
        """Forget which transaction decides about these messages, because it has an outcome."""
        for sent in identities:
            self._undecided.pop(sent, None)

    # ------------------------------------------------------------------ the journal's state

    def describe(self) -> list[WindowIds]:
        """Return all ids roughly in the order in which they came, in pieces of one window each. O(ids)."""
        pieces = [
            (self._age_of(stamp), WindowIds(*window.key, ids))
            for window in self._windows.values()
            for stamp, ids in window.ids.pieces(PIECE_IDS)
        ]
        pieces.sort(key=lambda piece: -piece[0])
        return [piece for _, piece in pieces]

    def restore(self, windows: Iterable[WindowIds]) -> None:
        """Replace all windows. Requires: their destinations are registered."""
        for key in list(self._windows):
            self._drop(key)
        for destination, producer, ids in windows:
            for at in range(0, len(ids), DIGEST_BYTES):
                self.remember(Identity(destination, producer, ids[at : at + DIGEST_BYTES]))

    # ------------------------------------------------------------------ memory

    def resize(self, limit_bytes: int) -> None:
        """Set the memory limit of the windows. If they are above it, forget the oldest ids."""
        self.limit_bytes = limit_bytes
        self._shrink(limit_bytes, None)

    @property
    def held_bytes(self) -> int:
        """Bytes held, computed anew. O(windows)."""
        return sum(WINDOW_CHARGE_BYTES + ID_CHARGE_BYTES * len(window.ids) for window in self._windows.values())

    def producers(self, destination_number: int) -> int:
        """Return how many producers have a window. All producers without a name count as one. O(windows)."""
        return sum(1 for found, _ in self._windows if found == destination_number)

    @property
    def messages(self) -> int:
        """Number of known ids."""
        return sum(len(window.ids) for window in self._windows.values())

    def _reserve(self, charge_bytes: int, but: _Window | None) -> bool:
        """Charge for an id or a window. Return False if there is no memory.

        This may forget the oldest ids of any window, and windows without ids, except the window `but`.
        """
        if not self._shrink(self.limit_bytes - charge_bytes, but):
            return False
        if not self._account.reserve(charge_bytes):
            self._make_room(ROOM_BYTES)
            if not self._account.reserve(charge_bytes):
                # Other holders free no memory, so the windows must.
                if not self._shrink(self._held_bytes - charge_bytes, but) or not self._account.reserve(charge_bytes):
                    return False
        self._held_bytes += charge_bytes
        return True

    def _shrink(self, to_bytes: int, but: _Window | None) -> bool:
        """Drop the oldest ids until the windows hold at most `to_bytes`. Return whether that was possible.

        The window `but` is not dropped, even without ids.
        """
        while self._held_bytes > to_bytes:
            window = self._pop_oldest()
            if window is None:
                return False
            self._drop_oldest(window)
            self.forgotten += 1
            if len(window.ids):
                self._push(self._noted_at(window.ids.oldest_stamp), window)
            elif window is but:
                self._push(self._noted, window)
            else:
                self._drop(window.key)
        return True

    def _pop_oldest(self) -> _Window | None:
        """Remove and return the window with the oldest id. None: there is no id."""
        while self._oldest:
            noted_at, _, window = self._oldest[0]
            if window.is_gone:
                heappop(self._oldest)
                continue
            if not len(window.ids):
                return None  # only the window `but` of `_shrink` may be empty, and no other is left
            heappop(self._oldest)
            oldest_at = self._noted_at(window.ids.oldest_stamp)
            if oldest_at <= noted_at:
                return window
            self._push(oldest_at, window)
        return None

    def _push(self, noted_at: int, window: _Window) -> None:
        if len(self._oldest) > 2 * len(self._windows) + 8:
            self._oldest = [entry for entry in self._oldest if not entry[2].is_gone]
            heapify(self._oldest)
        self._entries += 1
        heappush(self._oldest, (noted_at, self._entries, window))

    def _age_of(self, stamp: int) -> int:
        """Return how many ids were noted since a stamp. After 2^32 more ids, a stamp looks new again."""
        return (self._noted - stamp) & MASK

    def _noted_at(self, stamp: int) -> int:
        return self._noted - self._age_of(stamp)

    def _drop(self, key: tuple[int, bytes]) -> None:
        window = self._windows.pop(key)
        window.is_gone = True
        self._release(WINDOW_CHARGE_BYTES + ID_CHARGE_BYTES * len(window.ids))

    def _drop_oldest(self, window: _Window) -> None:
        window.ids.drop_oldest()
        self._release(ID_CHARGE_BYTES)

    def _release(self, charge_bytes: int) -> None:
        self._held_bytes -= charge_bytes
        self._account.release(charge_bytes)

    def _check(self) -> None:
        assert self._held_bytes == self.held_bytes <= max(self.limit_bytes, 0)
        assert {window for _, _, window in self._oldest if not window.is_gone} == set(self._windows.values())
        for key, window in self._windows.items():
            assert window.key == key and not window.is_gone
            assert 0 < len(window.ids) <= self._sizes[key[0]]
            window.ids._check()
