"""Finder: one pending message by its id.

An id that the store generated carries lane and sequence, so it is found
without looking at any other message. Every other id is a part of its message
and nowhere else: it is looked for among the first messages of the queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...store.errors import ArgumentError
from ...store.message import Message
from ..core.queue_area import LaneState, QueueArea
from .browse import as_message

if TYPE_CHECKING:
    from ..engine.engine import Engine

FIND_MESSAGES_MAX: Final = 10_000
"""So many messages are looked at for an id that the store did not generate: of 1 KiB each, some 30 ms."""
SEQUENCE_DIGITS_MAX: Final = 18
"""Of any sequence there can be."""


def find(engine: Engine, queue: QueueArea, message_id: object) -> Message | None:
    """See Queue.find. REQUIRES: no lock."""
    if not isinstance(message_id, str):
        raise ArgumentError(f"a message id is a str, not {type(message_id).__name__}")
    with engine.lock:
        engine.raise_closed()
        place = _place(queue, message_id)
    if place is None:
        return _scan(engine, queue, message_id)
    area, sequence = place
    for messages in engine.browsers.loads(area, sequence, min(sequence + 1, area.published)):
        for found in messages:
            message = as_message(area, found)
            return message if message is not None and message.message_id == message_id else None
    return None


def _place(queue: QueueArea, message_id: str) -> tuple[LaneState, int] | None:
    """Which message was given this id by the store; None: it generates none like it."""
    for area in queue.lane_areas():
        digits = message_id.removeprefix(area.id_prefix)
        if digits != message_id and digits.isascii() and digits.isdigit() and len(digits) <= SEQUENCE_DIGITS_MAX:
            sequence = int(digits)
            return (area, sequence) if str(sequence) == digits else None
    return None


def _scan(engine: Engine, queue: QueueArea, message_id: str) -> Message | None:
    """Among the first FIND_MESSAGES_MAX messages."""
    try:
        needle = message_id.encode()
    except UnicodeEncodeError:
        return None
    left = FIND_MESSAGES_MAX
    for area, messages in engine.browsers.walk(queue, None):
        for found in messages[:left]:
            if needle in found[1]:
                message = as_message(area, found)
                if message is not None and message.message_id == message_id:
                    return message
        left -= len(messages)
        if left <= 0:
            break
    return None
