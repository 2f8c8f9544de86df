"""Plays recorded traffic under several memory limits, and recommends one of them.

It reads a trace and writes nothing. A trace may come from anyone. So it is refused before anything is played if an
event cannot follow on those before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from ...store.disk.disk import File
from ...store.disk.user_file import user_place
from ...store.errors import SettingsError
from ...store.format.trace import ARRIVE, GONE, LIST, TAKE, TICK, UNLIST, WAITING, Event, TraceHeader, TraceReader
from ...store.numbering import BLOCK_MESSAGES
from ...store.structures.sequence_set import SequenceSet
from ..config.memory_plan import shares_of
from ..config.settings import MESSAGE_BYTES_MAX, Settings
from ..config.sizes import MIB
from ..core.memory.curve import Curve, CurvePoint
from ..core.memory.memory_rule import MemoryRule
from .player import TracePlayer

LIMITS: Final = tuple(4 * MIB << doubled for doubled in range(8))
"""The usual limits, 4 MiB to 512 MiB. The limit under which the trace was recorded is added to them."""
LIMITS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class PlannedLimit:
    """The results of a trace under one memory limit."""

    limit_bytes: int
    deliveries: int
    hits: int
    """The number of deliveries whose message had stayed in RAM since its arrival."""
    reads: int
    """The number of reads of the journal, up to 256 KiB each."""
    read_messages: int
    """The messages in these reads, with those that were read for a list whose selector did not match them."""
    strays: int
    """The number of deliveries in another order than recorded. Beyond a few, do not trust the rest."""
    held_back: int
    """The number of deliveries for which the limit has no room beside all that was in flight when they were recorded.

    A consumer would have to acknowledge first. They count as deliveries, and not as hits.
    """

    @property
    def hit_ratio(self) -> float:
        return self.hits / self.deliveries if self.deliveries else 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The results of a whole trace under each limit, the smallest first."""

    recorded_limit_bytes: int
    seconds: float
    """The time that the trace covers."""
    events: int
    unread_bytes: int
    """Bytes at the end of the file that are not a whole block: the process was killed, or still writes."""
    limits: tuple[PlannedLimit, ...]

    @property
    def curve(self) -> Curve:
        points = tuple(CurvePoint(planned.limit_bytes, planned.hit_ratio) for planned in self.limits)
        return Curve(points, self.limits[0].deliveries)


def plan(file: File, limits: Sequence[int] = (), recording_bytes: int = 0) -> Plan:
    """Play a trace under each limit, or under the usual ones. Two passes over the file, O(messages * limits).

    SettingsError: it is no trace, or the index_cache_size that it was recorded with does not fit into a limit.

    recording_bytes: the memory that recording takes in the store that is asked about; 0: it does not record.
    """
    reader = TraceReader(file)
    recorded = reader.header.memory_limit_bytes
    asked = sorted(set(limits or (*LIMITS, recorded)))
    wanted, events, milliseconds = survey(reader.events())
    shares = [shares_of(settings_of(reader.header, limit)) for limit in asked]
    players = [TracePlayer(each, wanted, MemoryRule(), recording_bytes) for each in shares]
    for event in reader.events():
        for player in players:
            player.play(event)
    return Plan(
        recorded,
        milliseconds / 1000,
        events,
        reader.unread_bytes,
        tuple(
            PlannedLimit(
                player.limit_bytes,
                player.deliveries,
                player.hits,
                player.store.reads,
                player.store.read_messages,
                player.strays,
                player.held_back,
            )
            for player in players
        ),
    )


def settings_of(header: TraceHeader, limit_bytes: int) -> Settings:
    """Return the settings of a store that would have recorded this trace under another memory limit."""
    return Settings(
        memory_limit=limit_bytes,
        index_cache_size=header.index_cache_bytes or None,
        persistent_index=not header.has_index_in_ram,
    )


def survey(played: Iterable[Event]) -> tuple[dict[int, SequenceSet], int, int]:
    """Return what each list with a selector takes, the number of events, and how many milliseconds they cover.

    SettingsError: an event cannot follow on those before it. A trace that passes can be played in memory and time that
    follow from the size of the file.
    """
    found, events = _Survey(), 0
    for event in played:
        events += 1
        if not found.accept(event):
            raise SettingsError(f"event {events:,} of the trace cannot follow on those before it")
    return found.wanted, events, found.milliseconds


class _Survey:
    """What the events of a trace so far say about its lanes and lists."""

    def __init__(self) -> None:
        # What each list with a selector takes, by the number of the list.
        self.wanted: dict[int, SequenceSet] = {}
        self.milliseconds = 0
        # The lane of each list that is open.
        self._lists: dict[int, int] = {}
        # (lane, number) of each open list. The number is -1 for a list without a selector: a lane has at most one.
        self._open_lists: set[tuple[int, int]] = set()
        # The number of messages of each lane so far, and the sequence behind the last of them.
        self._stored: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    def accept(self, event: Event) -> bool:
        """Take the next event in; return whether it can follow on those before it."""
        kind, lane, first, count, extra = event
        if kind in (ARRIVE, WAITING):
            content_bytes_max = MESSAGE_BYTES_MAX * (count if kind == WAITING else 1)
            return extra <= content_bytes_max and self._add(lane, first, count)
        if kind == LIST:
            return self._begin_list(lane, extra >> 1, bool(extra & 1))
        if kind == UNLIST:
            self._open_lists.discard((lane, extra if extra in self.wanted else -1))
            return self._lists.pop(extra, None) == lane
        if kind == TICK:
            is_later, self.milliseconds = first >= self.milliseconds, first
            return is_later
        if kind == TAKE:
            return self._is_stored(lane, count) and self._take(lane, first, count, extra)
        return kind == GONE or self._is_stored(lane, count)

    def _add(self, lane: int, first: int, count: int) -> bool:
        is_sound = 0 < count <= BLOCK_MESSAGES and first >= self._ends.get(lane, 0)
        self._ends[lane] = first + count
        self._stored[lane] = self._stored.get(lane, 0) + count
        return is_sound

    def _begin_list(self, lane: int, number: int, has_selector: bool) -> bool:
        place = (lane, number if has_selector else -1)
        is_new = number not in self._lists and place not in self._open_lists
        self._lists[number] = lane
        self._open_lists.add(place)
        if has_selector:
            self.wanted[number] = SequenceSet()
        return is_new

    def _is_stored(self, lane: int, count: int) -> bool:
        return 0 < count <= self._stored.get(lane, 0)

    def _take(self, lane: int, first: int, count: int, number: int) -> bool:
        if self._lists.get(number) != lane:
            return False
        if number in self.wanted:
            self.wanted[number].add(first, first + count - 1)
        return True


def plan_file(path: str, limits: Sequence[int] = ()) -> Plan:
    """Plan by the trace in a file. SettingsError with the file's name: it can't be read, or is no trace."""
    with opened_trace(path) as file:
        return plan(file, limits)


@contextmanager
def opened_trace(path: str) -> Iterator[File]:
    """Open the file of a trace.

    SettingsError with the file's name: it can't be read, or the work in the block fails so.
    """
    disk, name = user_place(path)
    try:
        file = disk.open_for_reading(name)
    except OSError as error:
        raise SettingsError(f"{path} can't be read ({error.strerror})") from None
    try:
        yield file
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None
    except OSError as error:
        raise SettingsError(f"{path} can't be read ({error.strerror})") from None
    finally:
        file.close()
