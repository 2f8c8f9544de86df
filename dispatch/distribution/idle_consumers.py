"""IdleConsumers: the consumers whose last take found nothing, by the number of groups they own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..core.model.destination import CoreConsumer


class IdleConsumers:
    """The idle consumers of one priority in one selector group. The state lock guards it.

    They are kept by the number of groups they own. Few such numbers are distinct, because together they add up to the
    number of all groups.
    """

    __slots__ = ("_owned", "_counts", "_by_count")

    def __init__(self, owned: Callable[[CoreConsumer], int]) -> None:
        """Make an empty set.

        owned: returns how many groups a consumer owns.
        """
        self._owned = owned
        # How many groups each idle consumer owns.
        self._counts: dict[CoreConsumer, int] = {}
        self._by_count: dict[int, dict[CoreConsumer, None]] = {}

    def note(self, consumer: CoreConsumer) -> None:
        """Note that a consumer found nothing. O(1)."""
        if consumer not in self._counts:
            self._put(consumer)

    def remove(self, consumer: CoreConsumer) -> None:
        """Note that a consumer has got a message, or is gone. O(1)."""
        count = self._counts.pop(consumer, None)
        if count is not None:
            alike = self._by_count[count]
            del alike[consumer]
            if not alike:
                del self._by_count[count]

    def recount(self, consumer: CoreConsumer) -> None:
        """Note that the number of groups that a consumer owns has changed. O(1)."""
        if consumer in self._counts:
            self.remove(consumer)
            self._put(consumer)

    def _put(self, consumer: CoreConsumer) -> None:
        count = self._counts[consumer] = self._owned(consumer)
        self._by_count.setdefault(count, {})[consumer] = None

    def neediest(self, fewer_than: int, demand: Callable[[CoreConsumer], int]) -> CoreConsumer | None:
        """Return an idle consumer that could take a message: the one with the fewest groups, below a bound. None: none.

        A consumer without prefetch that does not wait is removed on the way, and its next take that finds nothing notes
        it again. So each take pays for one removal at most, and a call costs O(slow consumers + distinct counts).
        """
        pulling: list[CoreConsumer] = []
        found = next(self._eligible(fewer_than, demand, pulling), None)
        for consumer in pulling:
            self.remove(consumer)
        return found

    def _eligible(
        self, fewer_than: int, demand: Callable[[CoreConsumer], int], pulling: list[CoreConsumer]
    ) -> Iterator[CoreConsumer]:
        """Yield consumers that could take, those with the fewest groups first.

        pulling: consumers without prefetch that do not wait are added to it.
        """
        for count in sorted(self._by_count):
            if count >= fewer_than:
                return
            for consumer in self._by_count[count]:
                if consumer.activity.is_slow:
                    continue
                if demand(consumer) > 0:
                    yield consumer
                elif not consumer.prefetch_limit:
                    pulling.append(consumer)

    def _check(self) -> None:
        """Raise AssertionError if a count is not the present one."""
        assert {consumer: count for count, alike in self._by_count.items() for consumer in alike} == self._counts
        assert all(count == self._owned(consumer) for consumer, count in self._counts.items())
        assert all(self._by_count.values())
