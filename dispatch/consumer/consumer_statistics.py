"""ConsumerStatistics: the figures that a consumer reports."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.model.destination import CoreConsumer


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """Figures of a consumer and its share of the TargetLists of its selector group.

    Counts are in messages, watermarks in bytes.
    """

    direct_entries: int
    """Messages in RAM that the next `take` of this consumer, or of another one of its selector group, finds."""
    references: int
    """Messages behind the watermark that are known to match."""
    watermark_bytes: int
    """This consumer's share of the bytes in RAM for its selector group, by its rate compared with the others."""
    high_watermark_bytes: int
    """This consumer's share of the bytes that the lists may hold: four seconds of its rate, within a fair share of the
    limit.
    """
    messages_per_second: float
    """Its rate of taking in the last measured second."""
    misses: int
    in_flight: int
    delivered: int
    is_slow: bool
    """Whether it has neither taken nor settled for `slow_consumer_seconds`, though it holds messages or could have
    some.
    """


def consumer_statistics(consumer: CoreConsumer) -> ConsumerStatistics:
    """Return a snapshot. O(lists and consumers of the selector group). Requires: the lock."""
    lists = list(consumer.selector_group.in_turn())
    fractions = {
        selector_group: selector_group.rate_fraction(consumer)
        for selector_group in {target.selector_group for target in lists}
    }
    return ConsumerStatistics(
        direct_entries=sum(len(target.direct) for target in lists),
        references=sum(target.references.count + target.returned.count for target in lists),
        watermark_bytes=int(sum(target.direct_bytes * fractions[target.selector_group] for target in lists)),
        high_watermark_bytes=int(
            sum(target.high_watermark_bytes * fractions[target.selector_group] for target in lists)
        ),
        messages_per_second=consumer.activity.messages_per_second,
        misses=consumer.selector_group.misses,
        in_flight=consumer.in_flight,
        delivered=consumer.delivered,
        is_slow=consumer.activity.is_slow,
    )
