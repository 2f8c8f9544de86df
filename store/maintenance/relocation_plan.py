"""The choice of the data log to relocate next: arithmetic over exact counts, without a disk.

There are two options. *Copying* the live messages of a data log empties it and costs their bytes. *Naming* them in a
survivors record frees other data logs that stay only for acks of its messages, and costs 20 bytes for each run of
sequences.

An emptied data log can be deleted only when none of those remains for which it holds acks or copies. The price of
copying includes naming these, shared by all data logs that wait for the same ones. Each choice frees more than it
writes, so a sequence of choices ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ..format.record import ENTRY_BYTES, HEADER_BYTES, SLICE_BYTES
from ..index.data_log_use import DataLogUse

SPARSE: Final = 0.25
"""If the share of live bytes is below this, a data log is copied at once, and as long as anything is done."""
COPY_PRICE_MAX: Final = 0.75
"""Most bytes written for each byte that becomes free."""
NAME_PRICE_MAX: Final = 0.5
_RUN_BYTES: Final = 20
_MESSAGE_BYTES: Final = SLICE_BYTES + ENTRY_BYTES


class RelocationChoice(NamedTuple):
    data_log: int
    is_naming: bool
    freed_bytes: int
    """Bytes that become free in the end, by this choice or by all that wait for it."""


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

    prepared_bytes: bytes of slices of prepared transactions in each; they are copied like pending messages. unmovable:
        those that can't be copied. unnameable: those that can't be named, with the bytes that it would have freed;
        they are tried again for twice as many. only_sparse: continue with what costs next to nothing. O(data logs *
        data logs that wait for the same ones).
    """
    remaining = sorted(remaining)
    live = {data_log for data_log in remaining if uses[data_log].pending_messages or data_log in prepared_bytes}
    copied_bytes = {
        data_log: copied_bytes_of(uses[data_log]) + prepared_bytes.get(data_log, 0) for data_log in live - unmovable
    }
    sparse = [data_log for data_log in copied_bytes if copied_bytes[data_log] <= SPARSE * sizes[data_log]]
    if sparse:
        # The oldest first, because only older data logs can keep a data log.
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
    """The data logs with live messages that keep others, which are empty or will be once they are copied."""

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
        # Bytes of emptied data logs that wait only for this one.
        self.freed_alone = dict.fromkeys(live, 0)
        self._waiting: dict[int, int] = {}
        # Bytes of all data logs that wait for this one.
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
        """Return the data logs that keep this one, once it is empty."""
        return self._waits_for[data_log]

    def naming_bytes(self, data_log: int) -> float:
        """Return its share of the bytes for naming everything that keeps it; infinite if that is not possible."""
        if self._waits_for[data_log] & self._unnameable:
            return float("inf")
        return sum(
            (HEADER_BYTES + _RUN_BYTES * self._uses[root].pending_messages) / self._waiting[root]
            for root in self._waits_for[data_log]
        )


def _naming_prices(obstacles: _Obstacles, sizes: Mapping[int, int]) -> Iterator[tuple[float, RelocationChoice]]:
    """Yield, for each empty data log that is worth it, the naming of the obstacle that frees most."""
    for data_log in obstacles.emptied:
        price = obstacles.naming_bytes(data_log) / sizes[data_log]
        if obstacles.of(data_log) and price <= NAME_PRICE_MAX:
            root = max(obstacles.of(data_log), key=obstacles.freed.__getitem__)
            yield price, RelocationChoice(root, is_naming=True, freed_bytes=obstacles.freed[root])


def _copying_prices(
    obstacles: _Obstacles, sizes: Mapping[int, int], copied_bytes: Mapping[int, int], movable: set[int]
) -> Iterator[tuple[float, RelocationChoice]]:
    """Yield the data logs that are worth being copied, with what is freed behind them."""
    for data_log, size_bytes in copied_bytes.items():
        gain_bytes = sizes[data_log] + obstacles.freed_alone[data_log]
        blocked_bytes = obstacles.naming_bytes(data_log) if data_log in movable else 0
        price = (size_bytes + blocked_bytes) / gain_bytes
        if price <= COPY_PRICE_MAX:
            yield price, RelocationChoice(data_log, is_naming=False, freed_bytes=gain_bytes)


def copied_bytes_of(use: DataLogUse) -> int:
    """Return the bytes of its live messages as records of their own, which is the most that copies can take."""
    return use.pending_bytes + _MESSAGE_BYTES * use.pending_messages


def _waits_for(uses: Mapping[int, DataLogUse], remaining: list[int], live: set[int]) -> dict[int, frozenset[int]]:
    """Return, by data log, those with live messages that keep it, directly or through emptied ones.

    A record that undoes another is always in a younger data log, so ascending order meets those in between first.
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
