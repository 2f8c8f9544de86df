"""The choice of the data log to relocate next: arithmetic over exact counts, without a disk.

There are two options. *Copying* the live messages of a data log empties it, and costs the bytes of the messages.
*Naming* the live messages in a survivors record frees other data logs, which stay only for acks of messages in this
one. Naming costs 20 bytes for each run of sequences.

An emptied data log may have acks or copies of messages in other data logs, its *obstacles*. It can be deleted only when
these are gone or named. So the price of copying a data log includes the naming of its obstacles, shared by all data
logs that wait for the same obstacle. Each choice frees more bytes than it writes, so a sequence of choices ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ..format.record import ENTRY_BYTES, HEADER_BYTES, SLICE_BYTES
from ..index.data_log_use import DataLogUse

SPARSE: Final = 0.25
"""A data log with a lower share of live bytes is sparse: it is copied before all others, and also below the target."""
COPY_PRICE_MAX: Final = 0.75
"""Most bytes that copying may write for each byte that becomes free."""
NAME_PRICE_MAX: Final = 0.5
_RUN_BYTES: Final = 20
_MESSAGE_BYTES: Final = SLICE_BYTES + ENTRY_BYTES


class RelocationChoice(NamedTuple):
    data_log: int
    is_naming: bool
    freed_bytes: int
    """Bytes that become free in the end: of this data log, or of the data logs that wait for it."""


def choose(
    uses: Mapping[int, DataLogUse],
    sizes: Mapping[int, int],
    remaining: Iterable[int],
    *,
    prepared_bytes: Mapping[int, int],
    unmovable: set[int],
    unnameable: Mapping[int, int],
    only_sparse: bool,
) -> RelocationChoice | None:
    """Return the best choice among `remaining`, the sealed data logs that cleanup could not delete.

    prepared_bytes: bytes of slices of prepared transactions, by data log. They are copied like pending messages.
    unmovable: data logs whose messages can't be copied.
    unnameable: data logs whose messages could not be named, with the bytes that naming would have freed. They are tried
        again once it would free more than twice as many.
    only_sparse: choose among sparse data logs only.

    O(data logs * data logs that wait for the same ones).
    """
    remaining = sorted(remaining)
    live = {data_log for data_log in remaining if uses[data_log].pending_messages or data_log in prepared_bytes}
    copied_bytes = {
        data_log: copied_bytes_of(uses[data_log]) + prepared_bytes.get(data_log, 0) for data_log in live - unmovable
    }
    sparse = [data_log for data_log in copied_bytes if copied_bytes[data_log] <= SPARSE * sizes[data_log]]
    if sparse:
        # The oldest one first, because the acks in a data log are of messages in older ones.
        data_log = min(sparse)
        return RelocationChoice(data_log, is_naming=False, freed_bytes=sizes[data_log])
    if only_sparse:
        return None
    movable = {data_log for data_log in copied_bytes if copied_bytes[data_log] <= COPY_PRICE_MAX * sizes[data_log]}
    obstacles = _Obstacles(uses, sizes, remaining, live, movable, unnameable)
    prices = [
        *_naming_prices(obstacles, sizes),
        *_copying_prices(obstacles, sizes, copied_bytes, movable),
    ]
    return min(prices)[1] if prices else None


class _Obstacles:
    """The data logs with live messages for which others wait, and what each obstacle costs and frees.

    A data log waits for an obstacle if it is empty, or will be once it is copied, and has acks of messages there.
    """

    def __init__(
        self,
        uses: Mapping[int, DataLogUse],
        sizes: Mapping[int, int],
        remaining: list[int],
        live: set[int],
        movable: set[int],
        unnameable: Mapping[int, int],
    ) -> None:
        self._uses = uses
        self._waits_for = _waits_for(uses, remaining, live)
        self.emptied = [data_log for data_log in remaining if data_log not in live]
        # Bytes of the empty data logs that wait for this obstacle alone.
        self.freed_alone = dict.fromkeys(live, 0)
        # How many data logs wait for this obstacle.
        self._waiting: dict[int, int] = {}
        # Bytes of all data logs that wait for this obstacle.
        self.freed: dict[int, int] = {}
        for data_log in (*self.emptied, *movable):
            for root in self._waits_for[data_log]:
                self._waiting[root] = self._waiting.get(root, 0) + 1
                self.freed[root] = self.freed.get(root, 0) + sizes[data_log]
        for data_log in self.emptied:
            if len(self._waits_for[data_log]) == 1:
                self.freed_alone[min(self._waits_for[data_log])] += sizes[data_log]
        self._unnameable = {
            root for root, size in self.freed.items() if root in unnameable and size <= 2 * unnameable[root]
        }

    def of(self, data_log: int) -> frozenset[int]:
        """Return the obstacles of a data log: it can't be deleted before they are gone, even if it is empty."""
        return self._waits_for[data_log]

    def naming_bytes(self, data_log: int) -> float:
        """Return a data log's share of the bytes for naming its obstacles; infinite if one of them can't be named."""
        if self._waits_for[data_log] & self._unnameable:
            return float("inf")
        return sum(
            (HEADER_BYTES + _RUN_BYTES * self._uses[root].pending_messages) / self._waiting[root]
            for root in self._waits_for[data_log]
        )


def _naming_prices(obstacles: _Obstacles, sizes: Mapping[int, int]) -> Iterator[tuple[float, RelocationChoice]]:
    """Yield, for each empty data log that is worth it, the naming of the one obstacle that frees most."""
    for data_log in obstacles.emptied:
        price = obstacles.naming_bytes(data_log) / sizes[data_log]
        if obstacles.of(data_log) and price <= NAME_PRICE_MAX:
            root = max(obstacles.of(data_log), key=obstacles.freed.__getitem__)
            yield price, RelocationChoice(root, is_naming=True, freed_bytes=obstacles.freed[root])


def _copying_prices(
    obstacles: _Obstacles, sizes: Mapping[int, int], copied_bytes: Mapping[int, int], movable: set[int]
) -> Iterator[tuple[float, RelocationChoice]]:
    """Yield the data logs that are worth copying."""
    for data_log, size_bytes in copied_bytes.items():
        gain_bytes = sizes[data_log] + obstacles.freed_alone[data_log]
        blocked_bytes = obstacles.naming_bytes(data_log) if data_log in movable else 0
        price = (size_bytes + blocked_bytes) / gain_bytes
        if price <= COPY_PRICE_MAX:
            yield price, RelocationChoice(data_log, is_naming=False, freed_bytes=gain_bytes)


def copied_bytes_of(use: DataLogUse) -> int:
    """Return the most bytes that copies of a data log's live messages can take: each is a record of its own."""
    return use.pending_bytes + _MESSAGE_BYTES * use.pending_messages


def _waits_for(uses: Mapping[int, DataLogUse], remaining: list[int], live: set[int]) -> dict[int, frozenset[int]]:
    """Return the obstacles of each data log, directly or through empty data logs between them.

    A record that undoes another one is always in a younger data log. So in ascending order, the data logs between a
    data log and its obstacles come first.
    """
    waits_for: dict[int, frozenset[int]] = {}
    for data_log in remaining:
        found: set[int] = set()
        for older in uses[data_log].acked_data_logs:
            if older in live:
                found.add(older)
            else:
                found |= waits_for.get(older, frozenset())
        waits_for[data_log] = frozenset(found - {data_log})
    return waits_for
