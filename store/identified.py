"""Messages that must not be stored again, written with their ids: one record has both, so no crash parts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .format.record import IDENTIFIED, TIMED
from .format.times import Times
from .index.deduplication import Identity
from .index.lane import Lane

if TYPE_CHECKING:
    from .message_store import MessageStore


def add_identified(
    store: MessageStore,
    lane: Lane,
    timestamp: int,
    contents: list[tuple[bytes, bytes]],
    identities: Sequence[Identity],
    times: Sequence[Times] = (),
) -> int:
    """As MessageStore.add_slice. identities: of those of the messages that have an id of their own.

    times: of each message, where some have any, as their properties say.

    REQUIRES: state lock; what of a slice is required. StoreFull: neither message nor id is there. StoreFailed.
    """
    journal = store.journal
    flags = lane.priority | (IDENTIFIED if identities else 0) | (TIMED if times else 0)
    with journal.uninterrupted():
        if len(contents) == 1:
            [(properties, body)] = contents
            offset = journal.append_one(flags, lane.destination, lane.next_sequence, timestamp, properties, body)
            lengths = [len(properties) + len(body)]
        else:
            offset, lengths = journal.append_slice(flags, lane.destination, lane.next_sequence, timestamp, contents)
        data_log = journal.data_log
        store.adds += len(lengths)
        first = lane.add_slice(data_log, offset, lengths, store.index.uses[data_log])
        if times:
            lane.put_times(first, times)
            store.index.latest_ms = max(store.index.latest_ms, timestamp)
        for found in identities:
            store.duplicates.note(found)
    return first
