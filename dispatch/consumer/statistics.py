"""What a consumer tells of itself."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.model import Taker


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """A consumer and its part of the TargetLists that it shares with the consumers of the same selector.

    Counts of messages; the watermarks in bytes.
    """

    direct_entries: int
    """Messages in RAM that the next `take` of this consumer, or of another of its consumer group, finds."""
    references: int
    """Messages behind the watermark that are known to be for them."""
    watermark_bytes: int
    """This consumer's part of what is in RAM for its consumer group, by how fast it takes beside the others."""
    high_watermark_bytes: int
    """And of what the lists may hold: four seconds of its own rate, within its fair share of the limit."""
    messages_per_second: float
    """How fast this consumer took in the last second that was measured."""
    misses: int
    in_flight: int
    delivered: int
    is_slow: bool
    """It has neither taken nor settled anything for `slow_consumer_seconds`, and holds messages or could have some."""


def consumer_statistics(consumer: Taker) -> ConsumerStatistics:
    """Return a snapshot. O(lists and consumers of the consumer group). Requires: the lock."""
    lists = list(consumer.consumer_group.in_turn())
    parts = {group: group.part_of(consumer) for group in {target.consumer_group for target in lists}}
    return ConsumerStatistics(
        direct_entries=sum(len(target.direct) for target in lists),
        references=sum(target.references.count + target.returned.count for target in lists),
        watermark_bytes=int(sum(target.direct_bytes * parts[target.consumer_group] for target in lists)),
        high_watermark_bytes=int(sum(target.high_watermark_bytes * parts[target.consumer_group] for target in lists)),
        messages_per_second=consumer.activity.messages_per_second,
        misses=consumer.consumer_group.misses,
        in_flight=consumer.in_flight,
        delivered=consumer.delivered,
        is_slow=consumer.activity.is_slow,
    )
