"""DestinationWriter: begin, change and end queues and topics.

A change takes effect with its record; a crash before that leaves everything as it was.
"""

from __future__ import annotations

from ..format.destination_table import DestinationTable
from ..format.record import DELETE, DESTINATION
from ..format.state_record import QUEUE, Destination, encode_delete, encode_destination
from ..index.deduplication import Deduplication
from ..index.index import Index
from ..index.subscriptions import Subscriptions
from ..journal.journal import Journal
from ..state.property_table import PropertyTable


class DestinationWriter:
    """Writes the records with which queues and topics begin, change and end.

    The state lock guards it. Every method requires the state lock and raises StoreFull or StoreFailed.
    """

    def __init__(
        self,
        index: Index,
        subscriptions: Subscriptions,
        duplicates: Deduplication,
        properties: PropertyTable,
        journal: Journal,
        table: DestinationTable,
    ) -> None:
        self._index = index
        self._subscriptions = subscriptions
        self._duplicates = duplicates
        self._properties = properties
        self._journal = journal
        self._table = table

    def create(self, name: str, kind: int = QUEUE, *, is_temporary: bool = False) -> Destination:
        """Write the record of a new queue or topic; return the destination."""
        destination = Destination(self._subscriptions.next_number, kind, name, is_temporary=is_temporary)
        with self._journal.all_or_broken:
            self._journal.append(DESTINATION, 0, 1, encode_destination(destination))
            self._table[destination.number] = destination
            self._subscriptions.register(destination)
            self._duplicates.register(destination.number, name)
        return destination

    def delete(self, destination_number: int) -> None:
        """Delete a queue or topic with everything in it, and the topic's subscriptions. Its number is never used again.

        O(blocks of its index).

        One record stands for acks of all its messages and for the end of its name. Each data log begins with the
        destinations that exist, so records of the queue in older data logs have no effect, and no data log must remain
        for this record. A crash leaves the queue with everything in it, or nothing of it.

        Requires: no transaction without an outcome uses the queue. Raises StoreFull: nothing has changed.
        """
        with self._journal.all_or_broken:
            self._journal.append(DELETE, 0, 1, encode_delete(destination_number))
            del self._table[destination_number]
            self._subscriptions.delete_topic(destination_number)
            self._index.forget(destination_number)
            self._duplicates.forget(destination_number)
            self._properties.forget_retained(destination_number)

    def note_message_groups(self, destination_number: int) -> None:
        """Record that a queue has messages with groups from now on. The fact survives a restart."""
        if not (known := self._table[destination_number]).has_message_groups:
            noted = known._replace(has_message_groups=True)
            with self._journal.all_or_broken:
                self._journal.append(DESTINATION, 0, 1, encode_destination(noted))
                self._table[destination_number] = noted
