"""The file kr-store/state/destinations.json, which tells people what the store held when the file was written.

It has one line for each queue, topic and durable subscription, with the number of pending persistent messages. So `cat`
and `grep` show what a store holds while no process has it open. The store never reads the file; only the journal is
authoritative. The file is replaced as a whole, and never synced. A crash leaves the last file, which has the time of
its writing. A power cut may leave none, or a broken one. Opening a store removes the file, and the next checkpoint
writes another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import nlargest
from typing import Any, Final, NamedTuple

from .disk.disk import Disk, File
from .disk.layout import STATE_DIRECTORY
from .environment.clock import Clock, utc_text
from .environment.locks import AllOrBroken, OwnedLock
from .format.places import Extent
from .format.record import RecordDamaged
from .format.state_record import QUEUE, Destination, Subscription
from .index.index import Index
from .index.journaled_lane import JournaledLane
from .index.subscriptions import Subscriptions
from .journal.regions import Region, sent_at
from .numbering import LANE_SHIFT, PRIORITIES

DESTINATIONS: Final = f"{STATE_DIRECTORY}/destinations.json"
_NEW: Final = f"{STATE_DIRECTORY}/destinations.json.new"

LINES_MAX: Final = 10_000
"""Most queues, topics and subscriptions that get a line. Others are only counted."""
BYTES_MAX: Final = 4 << 20
"""Most bytes of lines. Beyond it, others are only counted."""
OLDEST_MAX: Final = 100
"""Number of queues and subscriptions, the deepest ones, whose oldest message is looked up."""
SELECTOR_MAX: Final = 200
"""Most characters of a selector; the rest is cut off."""
SHARE_MAX: Final = 0.01
"""Largest share of the time that the file may take. If it takes longer, the next one is written later."""
_PIECE_BYTES: Final = 1 << 15
_LINES_AT_ONCE: Final = 100
"""Number of lines for which the state lock is held at a time."""

_ABOUT: Final = "what this store held when this was written, without non-persistent messages; forebay never reads it"


class _Entry(NamedTuple):
    """A queue, a topic or a subscription."""

    number: int
    kind: str
    name: str
    facts: Subscription | None
    """None for a queue or topic."""


class _Head(NamedTuple):
    """The oldest message of a lane, and the state of the lane when it was looked up."""

    next_sequence: int
    pending_messages: int
    sent_ms: int


class DestinationsFile:
    """The destinations file of an open store. The checkpoint lock guards it."""

    def __init__(
        self,
        disk: Disk,
        index: Index,
        subscriptions: Subscriptions,
        destinations: Mapping[int, Destination],
        plan: Callable[[JournaledLane, Sequence[tuple[int, int]]], list[Region]],
        *,
        state_lock: OwnedLock,
        clock: Clock,
    ) -> None:
        """Make the file of a store.

        destinations: the live table of the store.
        plan: see MessageStore.plan.
        """
        self._disk = disk
        self._index = index
        self._subscriptions = subscriptions
        self._destinations = destinations
        self._plan = plan
        self._state_lock, self._all_or_broken = state_lock, AllOrBroken(state_lock)
        self._clock = clock
        self._heads: dict[int, _Head] = {}
        self._position = -1
        self._not_before = 0.0

    def remove(self) -> None:
        """Remove the file and the remains of an interrupted write, because they describe an earlier state."""
        for name in (DESTINATIONS, _NEW):
            with suppress(OSError):
                if self._disk.exists(name):
                    self._disk.remove(name)

    def refresh(self, position: int) -> None:
        """Write the file if the journal has grown, unless the last one took too long and is recent.

        Requires: the checkpoint lock, not the state lock. O(destinations), and at most OLDEST_MAX small reads.
        """
        began = self._clock.monotonic()
        if position != self._position and began >= self._not_before:
            self._position = position
            self.write(is_closed=False)
            self._not_before = began + (self._clock.monotonic() - began) / SHARE_MAX

    def write(self, *, is_closed: bool) -> None:
        """Replace the file, without a sync. If the disk refuses, remove it. Requires and costs: see `refresh`."""
        try:
            if self._disk.exists(_NEW):
                self._disk.remove(_NEW)
            file = self._disk.open(_NEW, create=True)
            try:
                self._write_to(file, is_closed=is_closed)
            finally:
                file.close()
            self._disk.rename(_NEW, DESTINATIONS)
        except OSError:
            self.remove()

    def _write_to(self, file: File, *, is_closed: bool) -> None:
        piece: list[str] = []
        size = 0
        for line in self._lines(is_closed=is_closed):
            piece.append(line)
            size += len(line)
            if size >= _PIECE_BYTES:
                file.append("".join(piece).encode("ascii"))
                piece, size = [], 0
        file.append("".join(piece).encode("ascii"))

    # ------------------------------------------------------------------ content

    def _lines(self, *, is_closed: bool) -> Iterator[str]:
        """Yield the text in ASCII, line by line. All lines together are valid JSON."""
        entries = self._entries()
        shown = entries[:LINES_MAX]
        oldest = self._oldest(shown)
        yield f'{{"about": {_json(_ABOUT)},\n"written": {_json(utc_text(self._clock.time_ms()))}, '
        yield f'"closed": {_json(is_closed)}, "destinations": ['
        left_out, size, separator = len(entries) - len(shown), 0, "\n"
        for rows in _parts(shown):
            with self._state_lock, self._all_or_broken:
                depths = [self._depth(entry) for entry in rows]
            for entry, (messages, size_bytes) in zip(rows, depths, strict=True):
                if size > BYTES_MAX:
                    left_out += 1
                    continue
                line = separator + _json(self._row(entry, messages, size_bytes, oldest))
                yield line
                size, separator = size + len(line), ",\n"
        yield f'\n],\n"left_out": {left_out}}}\n'

    def _row(self, entry: _Entry, messages: int, size_bytes: int, oldest: Mapping[int, int]) -> dict[str, Any]:
        """Return the row of an entry. oldest: see `_oldest`."""
        row: dict[str, Any] = {entry.kind: entry.name}
        if entry.facts is not None:
            topic = self._destinations.get(entry.facts.topic)
            selector = entry.facts.selector
            row["topic"] = topic.name if topic is not None else None
            row["selector"] = selector if selector is None or len(selector) <= SELECTOR_MAX else selector[:SELECTOR_MAX]
        row |= {"messages": messages, "bytes": size_bytes}
        if entry.number in oldest:
            row["oldest"] = utc_text(oldest[entry.number])
        return row

    def _entries(self) -> list[_Entry]:
        """Return all entries: queues by name, then topics by name, each followed by its durable subscriptions."""
        with self._state_lock:
            destinations = list(self._destinations.values())
            durable = self._subscriptions.encoded()
        by_topic: dict[int, list[Subscription]] = {}
        for facts in durable:
            if not facts.is_retention:
                by_topic.setdefault(facts.topic, []).append(facts)
        entries: list[_Entry] = []
        for one in sorted(destinations, key=lambda each: (each.kind, each.name)):
            entries.append(_Entry(one.number, "queue" if one.kind == QUEUE else "topic", one.name, None))
            for each in sorted(by_topic.get(one.number, ()), key=lambda each: each.name):
                entries.append(_Entry(each.number, "subscription", each.name, each))
        return entries

    def _lanes(self, entry: _Entry) -> Iterator[JournaledLane]:
        """Yield the lanes of an entry. Requires: the lock."""
        if entry.facts is not None:
            seen = self._subscriptions.for_report(entry.number)
            for lane in filter(None, seen.lanes if seen is not None else ()):
                lane.catch_up()
                yield lane
            return
        for priority in range(PRIORITIES):
            found = self._index.find_lane(entry.number << LANE_SHIFT | priority)
            if found is not None:
                yield found

    def _depth(self, entry: _Entry) -> tuple[int, int]:
        """Return the pending messages of an entry and their bytes. Requires: the lock."""
        lanes = list(self._lanes(entry))
        return sum(lane.pending_messages for lane in lanes), sum(lane.pending_bytes for lane in lanes)

    # ------------------------------------------------------------------ the oldest messages

    def _oldest(self, entries: Sequence[_Entry]) -> dict[int, int]:
        """Return when the oldest message of each of the deepest entries was sent, in ms since 1970, by number.

        An entry whose oldest message can't be read is left out.
        """
        ranked: list[tuple[int, int, _Entry]] = []
        for rows in _parts(entries):
            with self._state_lock, self._all_or_broken:
                ranked += [(self._depth(entry)[0], entry.number, entry) for entry in rows if entry.kind != "topic"]
            ranked = nlargest(OLDEST_MAX, ranked)
        oldest: dict[int, int] = {}
        known: dict[int, _Head] = {}
        for messages, number, entry in ranked:
            heads = self._entry_heads(entry) if messages else {}
            if heads:
                known |= heads
                oldest[number] = min(head.sent_ms for head in heads.values())
        self._heads = known
        return oldest

    def _entry_heads(self, entry: _Entry) -> dict[int, _Head]:
        """Return the oldest message of each lane of an entry, by number of the lane, if it can be read."""
        with self._state_lock, self._all_or_broken:
            lanes = [lane for lane in self._lanes(entry) if lane.pending_messages]
        heads = {lane.number: self._head(lane) for lane in lanes}
        return {number: head for number, head in heads.items() if head is not None}

    def _head(self, lane: JournaledLane) -> _Head | None:
        """Return the oldest message of a lane. None: none is pending, or it can't be read. Requires: no lock."""
        known = self._heads.get(lane.number)
        with self._state_lock, self._all_or_broken:
            seen = lane.next_sequence, lane.pending_messages
            if known is not None and known[:2] == seen:
                return known
            run = lane.pending_run(0, 1)
            if run is None:
                return None
            (region,) = self._plan(lane, [run])
        extent = region.extents[0]
        messages = extent.record_messages if isinstance(extent, Extent) else 1
        try:
            return _Head(*seen, sent_at(region.file, region.salt, extent.offset, messages))
        except (OSError, RecordDamaged):
            return None


def _parts(entries: Sequence[_Entry]) -> Iterator[Sequence[_Entry]]:
    return (entries[begin : begin + _LINES_AT_ONCE] for begin in range(0, len(entries), _LINES_AT_ONCE))


def _json(value: object) -> str:
    """Return JSON in printable ASCII, whatever characters a name has."""
    import json  # imported with the first file, not with the package

    return json.dumps(value).replace("\x7f", "\\u007f")
