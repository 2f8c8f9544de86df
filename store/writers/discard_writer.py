"""DiscardWriter: gives sequences to messages that no subscription receives, instead of storing them.

Each discard is one record. A crash before the record leaves the sequences free; after it they are taken. So no id is
ever given twice. Ids that count once are in the same record, so a message that is sent again after a crash is as little
stored as before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..format.branch import Branch, encode_commit
from ..format.identity import Identity
from ..format.record import COMMIT, HEADER_BYTES
from ..index.deduplication import Deduplication
from ..index.destination_lane import DestinationLane
from ..journal.journal import Journal

NO_TRANSACTION: Final = 0
"""Number in a commit record of a discard. No transaction has it."""


class DiscardWriter:
    """Writes the records of messages to topics without subscriptions. The state lock guards it."""

    def __init__(self, journal: Journal, duplicates: Deduplication) -> None:
        self._journal = journal
        self._duplicates = duplicates

    def discard(
        self, lane: DestinationLane, messages: int, content_bytes: int, identities: Sequence[Identity] = ()
    ) -> int:
        """Give sequences to messages that no subscription receives; return the first. Requires: the lock.

        Writes one record of 48 bytes, an ack of all of them. identities: of the messages that have an id of their own;
        if there are any, the record is the commit of a transaction that acknowledges the messages and stores none.
        """
        first = lane.next_sequence
        with self._journal.all_or_broken:
            if identities:
                branch = Branch(NO_TRANSACTION)
                branch.acknowledge(lane.number, first, first + messages - 1)
                branch.identities.extend(identities)
                payload = encode_commit(branch)
                self._journal.keep_together(HEADER_BYTES + len(payload), 1)  # a full disk refuses it, as it does sends
                self._journal.append(COMMIT, 0, 0, payload)
            else:
                self._journal.append_ack(lane.priority, lane.destination_number, first, messages)
            lane.pass_over(messages, content_bytes)
            for identity in identities:
                self._duplicates.remember(identity)
        return first
