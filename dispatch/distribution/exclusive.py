"""ExclusiveConsumers: one exclusive consumer of a queue gets everything, and the others wait to take over.

The other consumers are held up meanwhile, as in a paused queue: their dispatcher is NO_DISPATCH. So no take has to ask
whether there is an exclusive consumer.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from ..core.model.destination import CoreConsumer, CoreDestination


class ExclusiveConsumers:
    """The exclusive consumers of all queues. The state lock guards it; every method requires it held."""

    def __init__(self) -> None:
        # By queue, its exclusive consumers in line. Queues without any are not here.
        self._lines: dict[CoreDestination, _Line] = {}

    def join(self, consumer: CoreConsumer) -> None:
        """Give everything to an exclusive consumer, or let it wait in line behind the present one."""
        queue = consumer.destination
        consumer.is_exclusive = True
        line = self._lines.get(queue)
        if line is None:
            line = self._lines[queue] = _Line()
        line.join(consumer)
        if queue.exclusive is None:
            _choose(queue, line)

    def leave(self, consumer: CoreConsumer) -> None:
        """Remove a closed exclusive consumer, which has given back its deliveries."""
        queue = consumer.destination
        line = self._lines[queue]
        line.leave(consumer)
        if line.first() is None:
            del self._lines[queue]
        if queue.exclusive is consumer:
            _choose(queue, line)


def _choose(queue: CoreDestination, line: _Line) -> None:
    """Make the first consumer in line the exclusive one. If the line is empty, all consumers may take again.

    O(log exclusive consumers) if one exclusive consumer follows another, otherwise O(consumers).
    """
    before, queue.exclusive = queue.exclusive, line.first()
    if before is not None and queue.exclusive is not None:
        queue.exclusive.follow_destination()  # the other consumers got nothing before, and get nothing now
        return
    for consumer in list(queue.consumers()):
        consumer.follow_destination()
        if queue.holds_up(consumer):
            queue.distribution.revoke(consumer)
    for selector_group in queue.selector_groups.values():
        # A take of a consumer that is held up now must end its wait, or it would use up a wake-up meant for another.
        selector_group.wake_takes()


class _Line:
    """The exclusive consumers of one queue, by priority and then in order of arrival. O(log n) for each operation."""

    def __init__(self) -> None:
        self._consumers: set[CoreConsumer] = set()
        self._arrivals = 0
        # By priority and arrival. Consumers that have left may still be here, but at most as many as are in line.
        self._heap: list[tuple[int, int, CoreConsumer]] = []

    def join(self, consumer: CoreConsumer) -> None:
        self._consumers.add(consumer)
        self._arrivals += 1
        heappush(self._heap, (-consumer.priority, self._arrivals, consumer))

    def leave(self, consumer: CoreConsumer) -> None:
        self._consumers.remove(consumer)
        if len(self._heap) > 2 * len(self._consumers):
            self._heap = [entry for entry in self._heap if entry[2] in self._consumers]
            heapify(self._heap)

    def first(self) -> CoreConsumer | None:
        """Return the first consumer in line. None: the line is empty."""
        while self._heap and self._heap[0][2] not in self._consumers:
            heappop(self._heap)
        return self._heap[0][2] if self._heap else None
