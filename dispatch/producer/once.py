"""Sending once: messages whose ids are in the duplicate window of their destination are not stored again.

Whoever sends again what a crash left unconfirmed gets its id, as if it had
been stored now; and as safe, because the call ends as every other send does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...store.format.identity import Identity, identity
from ...store.format.properties import own_identity
from ...store.format.times import has_times, times_of
from ..core.queue_area import PersistentLaneState, QueueArea
from .timed import arrive_timed

if TYPE_CHECKING:
    from ..core.non_persistent import NonPersistentLaneState
    from ..engine.engine import Engine
    from ..topics.fan_out import FanOut


def identity_of(queue: QueueArea, properties: bytes) -> Identity | None:
    """What makes a message the same as another; None where it has no id of its own."""
    found = own_identity(properties)
    return identity(queue.number, *found) if found is not None else None


def fresh(engine: Engine, queue: QueueArea, batch: Sequence[tuple[bytes, bytes]]) -> int:
    """How many of the first are not stored yet, and different from each other. 0: the first one is. REQUIRES: no lock.

    TransactionError as DuplicateWindows.is_stored.
    """
    seen: set[Identity] = set()
    with engine.lock:
        for count, (properties, _) in enumerate(batch):
            found = identity_of(queue, properties)
            if found is None:
                continue
            if found in seen or engine.windows.is_stored(found):
                return count
            seen.add(found)
    return len(batch)


def store_once(
    engine: Engine,
    area: PersistentLaneState,
    timestamp: int,
    batch: Sequence[tuple[bytes, bytes]],
    own_ids: Sequence[str | None],
    ids: list[str],
) -> None:
    """Write of a slice what is not stored yet; ids gets those of all. StoreFull: ids says how many of the first are
    in. REQUIRES: no lock."""
    identities = [identity_of(area.queue, properties) for properties, _ in batch]
    with engine.lock:
        if has_times(batch[0][0]):
            timestamp = engine.store.steady.now_ms()
        seen: set[Identity] = set()
        fresh: list[int] = []
        for at, found in enumerate(identities):
            if found is None or not (found in seen or engine.windows.is_stored(found)):
                fresh.append(at)
                if found is not None:
                    seen.add(found)
        done = 0
        while fresh:
            room = area.index_lane.slice_room
            part, fresh = fresh[:room], fresh[room:]
            first = _write(engine, area, timestamp, [batch[at] for at in part], _known(identities, part))
            sequences = dict(zip(part, range(first, first + len(part)), strict=True))
            behind = fresh[0] if fresh else len(batch)
            ids += [own_ids[at] or f"{area.id_prefix}{sequences[at]}" for at in range(done, behind)]
            done = behind
        ids += [own_id for own_id in own_ids[done:] if own_id is not None]


def _known(identities: Sequence[Identity | None], part: Sequence[int]) -> list[Identity]:
    return [found for at in part if (found := identities[at]) is not None]


def _write(
    engine: Engine,
    area: PersistentLaneState,
    timestamp: int,
    part: list[tuple[bytes, bytes]],
    identities: list[Identity],
) -> int:
    """Store them and let them arrive; returns the first sequence. REQUIRES: the lock."""
    times = [times_of(properties) for properties, _ in part] if has_times(part[0][0]) else []
    first = engine.store.append_slice(area.index_lane, timestamp, part, times, identities)
    if times:
        arrive_timed(engine, area, timestamp, first, part, times)
        return first
    arrived = [(sequence, properties, body, timestamp) for sequence, (properties, body) in enumerate(part, first)]
    engine.arrive(area, arrived)
    return first


def keep_once(
    engine: Engine,
    area: NonPersistentLaneState | FanOut,
    timestamp: int,
    batch: Sequence[tuple[bytes, bytes]],
    own_ids: Sequence[str | None],
    ids: list[str],
) -> None:
    """As store_once, of non-persistent messages. What no crash leaves, no id outlives. REQUIRES: the lock."""
    for (properties, body), own_id in zip(batch, own_ids, strict=True):
        found = identity_of(area.queue, properties)
        if found is not None and own_id is not None and engine.windows.is_stored(found):
            ids.append(own_id)
            continue
        if has_times(properties):
            sequence = area.add_timed(timestamp, properties, body, times_of(properties))
        else:
            sequence = area.add(timestamp, properties, body)
        if found is not None:
            engine.windows.volatile.note(found)
        ids.append(own_id if own_id is not None else f"{area.id_prefix}{sequence}")
