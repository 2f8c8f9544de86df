"""Diverting: a message for which a full destination has no room goes to its dead-letter queue, as its policy says.

It is stored there instead, once, with headers that say why; so no crash
leaves it in both or in none. As any dead letter it is taken whatever the
limits of that queue are, and also where sends are refused for want of disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...store.errors import SettingsError
from ...store.format.properties import decode_properties, encode_properties, group_of
from ...store.message import HeaderValue
from ...store.numbering import LANE_SHIFT
from ..admin.dead_letters import ATTEMPTS, FROM, FULL, REASON, TIME, accepting_dead_letters
from ..admin.move import make_index_room
from ..distribution.grouped import note_groups

if TYPE_CHECKING:
    from ..core.queue_area import QueueArea
    from ..engine.engine import Engine


def dead_letter_on_overflow(
    engine: Engine, area: QueueArea, priority: int, persistent: bool, properties: bytes, body: bytes
) -> str | None:
    """Store it in the dead-letter queue of that destination: its id. None: there is no such queue, so it is lost.

    What is written is not synced yet. StoreFull: nothing is stored, the disk takes no dead letters either.
    REQUIRES: no lock.
    """
    store = engine.store
    to = engine.redelivery.dead_letters.rule(area).dead_letter_queue
    if to is None:
        with engine.lock:
            area.dropped += 1
        return None
    make_index_room(store)
    timestamp = engine.clock_ms()
    own_id, group, properties = _stamped(area, timestamp, properties)
    with engine.lock:
        engine.raise_closed()
        with accepting_dead_letters(store.journal):
            queue = engine.queue_locked(to)
            if group is not None:
                note_groups(engine, queue)
            if persistent:
                target = engine.lane_area(queue.number << LANE_SHIFT | priority)
                id_prefix = target.id_prefix
                sequence = store.append_slice(target.index_lane, timestamp, [(properties, body)])
                engine.arrive(target, ((sequence, properties, body, timestamp),))
            else:
                volatile = engine.non_persistent_lane(queue, priority)
                id_prefix = volatile.id_prefix
                sequence = volatile.add(timestamp, properties, body)
        area.dead_lettered += 1
    return own_id if own_id is not None else f"{id_prefix}{sequence}"


def _stamped(area: QueueArea, timestamp: int, properties: bytes) -> tuple[str | None, str | None, bytes]:
    """(own id, group, properties without times, and with headers that say why it is there, where they have room)."""
    added: dict[str, HeaderValue] = {FROM: area.name, REASON: FULL, ATTEMPTS: 0, TIME: timestamp}
    headers, own_id = decode_properties(properties) if properties else ({}, None)
    group = group_of(properties) if properties else None
    try:
        return own_id, group, encode_properties(headers | added, own_id, group)
    except SettingsError:
        return own_id, group, encode_properties(headers, own_id, group)
