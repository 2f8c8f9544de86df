"""`forebay plan TRACE`: what each memory limit would have made of recorded traffic, and which one to choose."""

from __future__ import annotations

import dataclasses
import json
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ...cache.curve import Curve, CurvePoint
from ...store.disk.disk import File
from ...store.disk.user_file import user_place
from ...store.errors import SettingsError
from ...store.format.trace import ARRIVE, GONE, LIST, TAKE, TICK, UNLIST, WAITING, TraceHeader, TraceReader
from ...store.numbering import BLOCK_MESSAGES
from ...store.sequence_set import SequenceSet
from ..config.memory_plan import shares_of
from ..config.settings import MAX_MESSAGE_BYTES, MIN_MEMORY_LIMIT_BYTES, Settings
from ..config.sizes import MIB, format_size, parse_size
from .player import TracePlayer

LIMITS: Final = tuple(4 * MIB << doubled for doubled in range(8))
"""4 MiB to 512 MiB; the limit under which the trace was recorded comes with them."""
LIMITS_MAX: Final = 64
LIMIT_BYTES_MAX: Final = 1 << 50

Print = Callable[[str], object]
"""Where a line goes."""


@dataclass(frozen=True, slots=True)
class PlannedLimit:
    """What one limit would have made of the trace."""

    limit_bytes: int
    deliveries: int
    hits: int
    """Deliveries whose message never left RAM before."""
    reads: int
    """Of the journal, up to 256 KiB each."""
    read_messages: int
    """Those read for a list whose selector did not match them included."""
    strays: int
    """Deliveries in another order than recorded: beyond a few, do not trust the rest."""

    @property
    def hit_ratio(self) -> float:
        return self.hits / self.deliveries if self.deliveries else 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole trace, by limit, the smallest first."""

    recorded_limit_bytes: int
    seconds: float
    """That the trace covers."""
    events: int
    unread_bytes: int
    """At the end of the file, that are no whole block: the process was killed, or still writes."""
    limits: tuple[PlannedLimit, ...]

    @property
    def curve(self) -> Curve:
        points = tuple(CurvePoint(planned.limit_bytes, planned.hit_ratio) for planned in self.limits)
        return Curve(points, self.limits[0].deliveries)


def plan(file: File, limits: Sequence[int] = ()) -> Plan:
    """Play a trace under each limit, or under the usual ones. Two passes over the file.

    3 to 10 µs a message and limit. SettingsError: it is no trace, or an
    index_cache_size that it was recorded with does not fit into a limit.
    """
    reader = TraceReader(file)
    recorded = reader.header.memory_limit_bytes
    asked = sorted(set(limits or (*LIMITS, recorded)))
    wanted, events, milliseconds = _survey(reader)
    players = [TracePlayer(shares_of(_settings(reader.header, limit)), wanted) for limit in asked]
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
            )
            for player in players
        ),
    )


def _settings(header: TraceHeader, limit_bytes: int) -> Settings:
    return Settings(
        memory_limit=limit_bytes,
        index_cache_size=header.index_cache_bytes or None,
        persistent_index=not header.has_volatile_index,
    )


def _survey(reader: TraceReader) -> tuple[dict[int, SequenceSet], int, int]:
    """What each list with a selector takes, how many events there are, and how long they lasted.

    SettingsError: an event that cannot follow on those before it. What passes can be played, in memory and time that
    follow from the size of the file.
    """
    wanted: dict[int, SequenceSet] = {}
    lists: dict[int, int] = {}
    """Lane of each that is open."""
    open_lists: set[tuple[int, int]] = set()
    """(lane, number), and -1 for the number of one without a selector: there is at most one."""
    stored: dict[int, int] = {}
    """Messages of each lane so far."""
    ends: dict[int, int] = {}
    events = milliseconds = 0
    for kind, lane, first, count, extra in reader.events():
        events += 1
        if kind in (ARRIVE, WAITING):
            most_bytes = MAX_MESSAGE_BYTES * (count if kind == WAITING else 1)
            is_sound = 0 < count <= BLOCK_MESSAGES and extra <= most_bytes and first >= ends.get(lane, 0)
            ends[lane] = first + count
            stored[lane] = stored.get(lane, 0) + count
        elif kind == LIST:
            place = (lane, extra >> 1 if extra & 1 else -1)
            is_sound = extra >> 1 not in lists and place not in open_lists
            lists[extra >> 1] = lane
            open_lists.add(place)
            if extra & 1:
                wanted[extra >> 1] = SequenceSet()
        elif kind == UNLIST:
            is_sound = lists.pop(extra, None) == lane
            open_lists.discard((lane, extra if extra in wanted else -1))
        elif kind == TICK:
            is_sound = first >= milliseconds
            milliseconds = first
        else:
            is_sound = kind == GONE or 0 < count <= stored.get(lane, 0)
            if kind == TAKE:
                is_sound = is_sound and lists.get(extra) == lane
                if is_sound and extra in wanted:
                    wanted[extra].add(first, first + count - 1)
        if not is_sound:
            raise SettingsError(f"event {events:,} of the trace cannot follow on those before it")
    return wanted, events, milliseconds


# ------------------------------------------------------------------ the command


def plan_command(arguments: Namespace, print_line: Print) -> int:
    """`forebay plan TRACE`: a table; with --json one object; with --svg a picture as well. 1: nothing was delivered."""
    limits = _limits(arguments.limits)
    if arguments.svg is not None:
        from .picture import require

        require()
    found = plan_file(arguments.trace, limits)
    if arguments.svg is not None:
        from .picture import draw

        draw(found, arguments.svg)
    if arguments.json:
        print_line(json.dumps(as_json(found)))
    else:
        for line in table(found):
            print_line(line)
    return 0 if found.curve.deliveries else 1


def plan_file(path: str, limits: Sequence[int] = ()) -> Plan:
    """As plan, of the file with that name. SettingsError with its name."""
    disk, name = user_place(path)
    try:
        file = disk.open_for_reading(name)
    except OSError as error:
        raise SettingsError(f"{path} can't be read ({error.strerror})") from None
    try:
        return plan(file, limits)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None
    except OSError as error:
        raise SettingsError(f"{path} can't be read ({error.strerror})") from None
    finally:
        file.close()


def _limits(text: str | None) -> list[int]:
    if text is None:
        return []
    parts = text.split(",")
    if len(parts) > LIMITS_MAX:
        raise SettingsError(f"--limits has {len(parts)} sizes, above {LIMITS_MAX}")
    limits = [
        parse_size("--limits", part.strip(), minimum=MIN_MEMORY_LIMIT_BYTES, maximum=LIMIT_BYTES_MAX) for part in parts
    ]
    return sorted(set(limits))


def table(found: Plan) -> list[str]:
    """A plan as lines for a terminal."""
    curve = found.curve
    recommended = curve.recommended_limit_bytes
    lines = [
        f"{curve.deliveries:,} deliveries in {found.seconds:,.0f} s, recorded with memory_limit="
        f"{format_size(found.recorded_limit_bytes)}",
        "",
        f"{'memory_limit':>12}  {'hit ratio':>9}  {'read back':>10}  {'reads':>8}",
    ]
    for planned in found.limits:
        mark = "  <- recommended" if planned.limit_bytes == recommended else ""
        missed = planned.deliveries - planned.hits
        size = format_size(planned.limit_bytes)
        lines.append(f"{size:>12}  {planned.hit_ratio:>9.4f}  {missed:>10,}  {planned.reads:>8,}{mark}")
    lines.append("")
    if recommended is None:
        lines.append("nothing was delivered: there is nothing to recommend")
    else:
        lines.append(f"memory_limit={format_size(recommended)}: the smallest of them within 0.01 of the best hit ratio")
    if found.unread_bytes:
        lines.append(f"the last {found.unread_bytes:,} bytes are no whole block, and were left out")
    strays = max(planned.strays for planned in found.limits)
    if strays:
        lines.append(f"{strays:,} deliveries came in another order than recorded")
    return lines


def as_json(found: Plan) -> dict[str, object]:
    """A plan as plain data."""
    limits = [dataclasses.asdict(planned) | {"hit_ratio": planned.hit_ratio} for planned in found.limits]
    return dataclasses.asdict(found) | {
        "limits": limits,
        "recommended_limit_bytes": found.curve.recommended_limit_bytes,
    }
