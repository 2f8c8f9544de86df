"""TargetList: what the consumers of one consumer group will take next from one lane, in order.

    returned | direct messages | references | frontier ... newest message
                               ^ watermark

Direct messages are in RAM and charged. References are runs of sequences that
are known to match. Behind the frontier lies what nobody has looked at yet,
and costs nothing, so a list over ten million messages costs what one over
ten thousand costs. What came back from a consumer waits in `returned`; all
of it lies before the watermark and is offered first.

Consumers with equal selectors share one list. It is the simplest thing that
keeps first deliveries in order and lets no consumer hoard: a slow one holds
what it was handed and nothing else. A message is owned by whoever takes it
first; lists of other consumer groups that name it too pass over it ("stale").
"""

from __future__ import annotations

from collections import deque
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from ...cache.charge import OVERHEAD_BYTES, charge_bytes, charges_bytes
from ...cache.shares import BYTES_PER_SECOND_MIN, UNMEASURED_BYTES_PER_SECOND
from ...store.journal.reading import StoredMessage
from ...store.numbering import NOWHERE
from ...store.sequence_set import SequenceSet

if TYPE_CHECKING:
    from ..loading.eager import Load
    from .queue_area import ConsumerGroup, LaneState


class TargetList:
    """The state lock guards it."""

    __slots__ = (
        "area",
        "consumer_group",
        "frontier",
        "passed",
        "returned",
        "direct",
        "direct_bytes",
        "references",
        "high_watermark_bytes",
        "low_watermark_bytes",
        "load",
        "is_shared",
        "twin",
        "is_plain",
        "is_timed",
        "taken_bytes",
        "measured_bytes",
        "look_at",
        "loaded_bytes",
        "wanted_bytes",
        "measured_rate",
        "bytes_per_second",
    )

    def __init__(self, area: LaneState, consumer_group: ConsumerGroup, high_watermark_bytes: int) -> None:
        self.area = area
        self.consumer_group = consumer_group
        self.frontier = 0
        self.passed = 0
        """Everything before this sequence was passed, also while what came back stands before it in direct."""
        self.returned = SequenceSet()
        self.direct: deque[StoredMessage] = deque()
        self.direct_bytes = 0
        """Charge of the direct messages."""
        self.references = SequenceSet()
        self.high_watermark_bytes = high_watermark_bytes
        self.low_watermark_bytes = high_watermark_bytes // 2
        """Below this the loader is called."""
        self.load: Load | None = None
        """The one that is under way: somebody reads for this list outside the lock; nobody else may."""
        self.is_shared = False
        """Other consumer groups may take, or may have taken, what stands here: check before handing out."""
        self.twin: TargetList | None = None
        """The list of the same consumer group and priority that has the messages of the other delivery mode."""
        self.is_plain = not area.is_timed
        """Neither shared nor timed nor with a twin: what is direct can be handed out without a second look."""
        self.is_timed = area.is_timed
        """Some of what stands here may have expired: look before handing out."""
        self.taken_bytes = 0
        self.measured_bytes = 0
        self.loaded_bytes = 0
        """What was loaded for it since it was full, or had all that there was."""
        self.look_at = NOWHERE
        """When so many bytes were taken, the curve looks at this list."""
        self.measured_rate: float | None = None
        """Bytes a second that its consumers took lately; None: they never took any."""
        self.bytes_per_second = UNMEASURED_BYTES_PER_SECOND
        """The same as a number to divide by."""
        self.wanted_bytes = 0
        """What its last load would have needed, which found too little."""

    def measure(self, bytes_per_second: float) -> None:
        """So fast its consumers took lately."""
        self.measured_rate = bytes_per_second
        self.bytes_per_second = max(bytes_per_second, BYTES_PER_SECOND_MIN)

    @property
    def supply_seconds(self) -> float:
        """How long its direct messages last."""
        return self.direct_bytes / self.bytes_per_second

    @property
    def is_loading(self) -> bool:
        return self.load is not None

    @property
    def has_supply(self) -> bool:
        """Something may be behind the watermark, or has come back."""
        return self.frontier < self.area.published or self.references.count > 0 or self.returned.count > 0

    @property
    def has_room_for_all(self) -> bool:
        """Everything that is pending in its lane would fit under its watermark."""
        messages, content_bytes = self.area.lane.depth
        return content_bytes + messages * OVERHEAD_BYTES <= self.high_watermark_bytes

    @property
    def front(self) -> int:
        """Every candidate before this sequence was passed; what of it came back is in returned or direct."""
        if self.direct:
            first = self.direct[0][0]
        else:
            first = self.references.first if self.references else self.frontier
        return max(first, self.passed)

    @property
    def is_ready(self) -> bool:
        """What comes next is in RAM."""
        return bool(self.direct) and not (self.returned.count and self.returned.first < self.direct[0][0])

    @property
    def before_returned(self) -> int:
        """How many direct messages come before the first returned one. O(that). REQUIRES: something has returned."""
        first = self.returned.first
        return next((count for count, message in enumerate(self.direct) if message[0] > first), len(self.direct))

    @property
    def next_sequence(self) -> int | None:
        """No message of this list that is still to be handed out comes before this one; None: there is none."""
        first = self.direct[0][0] if self.direct else None
        if first is None and self.references:
            first = self.references.first
        if first is None and self.frontier < self.area.published:
            first = self.frontier
        if self.returned and (first is None or self.returned.first < first):
            first = self.returned.first
        return first

    def share(self) -> None:
        self.is_shared = True
        self.is_plain = False

    def watch_times(self) -> None:
        self.is_timed = True
        self.is_plain = False

    def pair(self, twin: TargetList) -> None:
        self.twin = twin
        self.is_plain = False

    def count_before(self, sequence: int, most: int) -> int:
        """How many of the first direct messages, at most `most`, come before a sequence. O(that many)."""
        direct = self.direct
        if len(direct) <= most and direct and direct[-1][0] < sequence:
            return len(direct)
        return sum(1 for _ in takewhile(lambda message: message[0] < sequence, islice(direct, most)))

    def move_high_watermark(self, high_watermark_bytes: int) -> None:
        self.high_watermark_bytes = high_watermark_bytes
        self.low_watermark_bytes = high_watermark_bytes // 2

    def credit_came(self) -> None:
        """Memory came free. The loader had given the list up for want of it: let it try again, if it is enough now."""
        targets = self.area.queue.target_area
        if self.wanted_bytes <= OVERHEAD_BYTES or targets.budget.free_bytes >= self.wanted_bytes:
            targets.waits_for_memory.pop(self, None)
            targets.feed(self)

    def append(self, message: StoredMessage, charge: int) -> None:
        """Put a message that is charged already behind the direct ones."""
        self.direct.append(message)
        self.direct_bytes += charge

    def direct_up_to(self, sequence: int) -> set[int]:
        """Which of the sequences up to this one are direct. O(that many)."""
        return {message[0] for message in takewhile(lambda message: message[0] <= sequence, self.direct)}

    def peek(self, sequence: int) -> StoredMessage | None:
        """A message with its body, if that is direct or was taken from a cache by the load under way. O(direct)."""
        held = self.load.held.get(sequence) if self.load is not None else None
        if held is None:
            held = next((message for message in self.direct if message[0] == sequence), None)
        return held if held is not None and held[2] is not None else None

    def put_back(self, messages: list[StoredMessage]) -> None:
        """Put loaded messages that had come back, in order and charged already, into their places. O(what was back)."""
        self.passed = self.front
        direct = self.direct
        merged: list[StoredMessage] = []
        for message in messages:
            while direct and direct[0][0] < message[0]:
                merged.append(direct.popleft())
            merged.append(message)
        direct.extendleft(reversed(merged))
        self.direct_bytes += charges_bytes(messages)

    def evict_last(self) -> StoredMessage:
        """Lower the watermark by one entry: the last direct message becomes a reference."""
        message = self.direct.pop()
        self.direct_bytes -= charge_bytes(message)
        self.references.add(message[0], message[0])
        return message

    def forget(self, gone: SequenceSet) -> int:
        """Take these out, wherever they stand; returns the charge of those that were direct. O(direct + runs)."""
        direct = [message for message in self.direct if message[0] not in gone]
        charge = self.direct_bytes - charges_bytes(direct)
        self.direct = deque(direct)
        self.direct_bytes -= charge
        for first, last in gone:
            self.returned.remove(first, last)
            self.references.remove(first, last)
            if first <= self.frontier <= last:
                self.frontier = last + 1
        return charge

    @property
    def held_bytes(self) -> int:
        """What the runs cost."""
        return self.returned.held_bytes + self.references.held_bytes

    def _check(self) -> None:
        assert self.direct_bytes == charges_bytes(self.direct)
        sequences = [message[0] for message in self.direct]
        assert sequences == sorted(set(sequences))
        self.returned._check()
        self.references._check()
        if self.direct and self.references:
            assert sequences[-1] < self.references.first
        for runs in (self.returned, self.references):
            assert not runs or runs.last < max(self.frontier, 1)
        if self.direct:
            assert sequences[-1] < self.frontier
