"""DiscardWriter: gives sequences to messages that no subscription receives, instead of storing them.

Each discard is one record. A crash before the record leaves the sequences free; after it they are taken. So no id is
ever given twice. The record has the form of an ack, but it makes no room: there may be any number of them, so a full
disk refuses them as it refuses messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..format.identity import Identity
from ..format.record import ACK_BYTES
from ..index.deduplication import Deduplication
from ..index.destination_lane import DestinationLane
from ..journal.journal import Journal


class DiscardWriter:
    """Writes the records of messages to topics without subscriptions. The state lock guards it."""

    def __init__(self, journal: Journal, duplicates: Deduplication) -> None:
        self._journal = journal
        self._duplicates = duplicates

    def discard(
        self, lane: DestinationLane, messages: int, content_bytes: int, identities: Sequence[Identity] = ()
    ) -> int:
        """Give sequences to messages that no subscription receives; return the first. Requires: the lock.

        Writes one record of 48 bytes, an ack of all of them. identities: of the messages that have an id of their own.
        StoreFull, as for any send: nothing has changed.
        """
        first = lane.next_sequence
        with self._journal.all_or_broken:
            self._journal.require_space(ACK_BYTES)
            self._journal.append_ack(lane.priority, lane.owner_number, first, messages)
            lane.discard_next(messages, content_bytes)
        for identity in identities:
            self._duplicates.remember(identity)
        return first
