"""ListContents: the messages that a TargetList knows, and where each of them is.

    returned | direct messages | references | frontier ... newest message
                               ^ direct end

- Direct messages are in RAM and charged.
- References are runs of sequences that match the selector and whose messages are not in RAM.
- The list has not examined messages behind the frontier. They cost nothing, so a list over ten million messages costs
  as much as one over ten thousand.
- Returned messages came back from a consumer. They lie before the frontier, before or between direct messages and
  references, until a load brings them to their places. The list hands out no direct message behind the first of them.

This module knows no lane and no consumer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from itertools import islice, takewhile
from typing import Any, Final

from ....cache.accounting.charge import charge_of, charge_of_all
from ....cache.accounting.overdraft import Overdraft
from ....store.stored_message import StoredMessage, sequence_of
from ....store.structures.sequence_set import SequenceSet
from .consumer_memory import DIRECT_BYTES, LIST_BYTES, ListRuns

NO_MESSAGES: Final[deque[StoredMessage]] = deque(maxlen=0)
"""The direct messages of all lists that have none, because an empty deque takes 760 bytes. It always stays empty."""


class ListContents:
    """The messages of a list, by where they are. The state lock guards it.

    Four sequences say how far a list has come, and its lane:

    passed_end                 each message before it was handed out or assigned, is gone, or does not match; or it came
                               back, and is in `returned` or `direct`
    frontier                   the list has examined each message before it
    LaneState.published_end    each message before it may be dispatched
    first_to_load              the next load begins there

    `direct` has messages. `returned` and `references` have only their sequences.
    """

    __slots__ = ("frontier", "passed_end_min", "returned", "direct", "direct_bytes", "references")

    def __init__(self, consumer_memory: Overdraft) -> None:
        """Make empty contents.

        consumer_memory: pays for the list itself, not for its messages.
        """
        # The first sequence that the list has not examined. To examine a message is to find out whether it is pending
        # and free, and whether it matches.
        self.frontier = 0
        # Lower bound of `passed_end`, for as long as `direct` begins with a message that came back and lies before it.
        self.passed_end_min = 0
        self.returned = ListRuns(consumer_memory)
        # NO_MESSAGES, or a deque of its own while the list holds direct messages or takes arrivals on the fast path.
        self.direct = NO_MESSAGES
        # Charge of the direct messages.
        self.direct_bytes = 0
        self.references = ListRuns(consumer_memory)

    @property
    def passed_end(self) -> int:
        """Sequence before which the list has passed each message; see the text of this class."""
        if self.direct:
            first = self.direct[0][0]
        else:
            first = self.references.first if self.references else self.frontier
        return max(first, self.passed_end_min)

    @property
    def first_to_load(self) -> int:
        """Where the next load begins: the first sequence that came back, is a reference, or is not examined."""
        first = self.returned.first if self.returned else self.frontier
        return min(first, self.references.first if self.references else self.frontier)

    @property
    def is_ready(self) -> bool:
        """Whether the next message is in RAM."""
        return bool(self.direct) and not (self.returned.count and self.returned.first < self.direct[0][0])

    @property
    def before_returned(self) -> int:
        """Number of direct messages before the first returned one. O(that number). Requires: a message has returned."""
        first = self.returned.first
        return next((count for count, message in enumerate(self.direct) if message[0] > first), len(self.direct))

    def count_before(self, sequence: int, most: int) -> int:
        """Return how many of the first direct messages come before a sequence, at most `most`. O(that number)."""
        direct = self.direct
        if len(direct) <= most and direct and direct[-1][0] < sequence:
            return len(direct)
        return sum(1 for _ in takewhile(lambda message: message[0] < sequence, islice(direct, most)))

    def append(self, message: StoredMessage, charge: int) -> None:
        """Append a message, whose charge is made already, to the direct ones."""
        self.own_direct()
        self.direct.append(message)
        self.direct_bytes += charge

    def extend(self, messages: list[StoredMessage], charge: int) -> None:
        """Append messages, whose charges are made already, to the direct ones. charge: that of the messages."""
        self.own_direct()
        self.direct.extend(messages)
        self.direct_bytes += charge

    def advance_frontier(self, end: int) -> None:
        """Move the frontier to `end` if it is not there. Requires: each message before `end` is examined or gone."""
        if end > self.frontier:
            self.frontier = end

    def note_returned(self, sequence: int) -> None:
        """Note that a message came back, so that a load brings it to its place. Requires: the list has passed it."""
        self.returned.add(sequence, sequence)

    def note_loaded(self, runs: list[tuple[int, int]], last: int) -> None:
        """Note that a load has brought all that the list gets of these runs, up to `last`.

        The messages of the runs are no longer returned, references or behind the frontier.
        """
        for first, end in runs:
            if first <= last:
                self.returned.remove(first, min(end, last))
                self.references.remove(first, min(end, last))
        self.advance_frontier(last + 1)

    def refer_behind_direct(self, loaded: list[StoredMessage]) -> int:
        """Turn loaded messages behind the first reference into references, and return their charge.

        The direct end moved back during the read, because memory ran short. These messages are removed from `loaded`.
        """
        charge = 0
        while loaded and self.references and loaded[-1][0] > self.references.first:
            message = loaded.pop()
            charge += charge_of(message)
            self.references.add(message[0], message[0])
        return charge

    def own_direct(self) -> None:
        """Give the list a deque of its own for direct messages."""
        if self.direct is NO_MESSAGES:
            self.direct = deque()
            self.returned.consumer_memory.charge(DIRECT_BYTES)

    def hand_back_direct(self) -> None:
        """Drop the deque for direct messages. Requires: it is empty, and the list is not on the fast path."""
        if self.direct is not NO_MESSAGES:
            self.direct = NO_MESSAGES
            self.returned.consumer_memory.release(DIRECT_BYTES)

    def direct_up_to(self, sequence: int) -> set[int]:
        """Return the sequences of direct messages up to this one. O(that number)."""
        return {message[0] for message in takewhile(lambda message: message[0] <= sequence, self.direct)}

    def forget_known(self, runs: SequenceSet) -> None:
        """Remove from `runs` what is direct or a reference, and so is in its place. O(messages between their ends)."""
        if not runs:
            return
        first, last = runs.first, runs.last
        direct = self.direct
        if direct and direct[-1][0] >= first:
            behind = islice(direct, bisect_left(direct, first, key=sequence_of), None)
            for message in takewhile(lambda message: message[0] <= last, behind):
                runs.remove(message[0], message[0])
        at = first
        while (known := self.references.next_from(at)) is not None and known[0] <= last:
            runs.remove(*known)
            at = known[1] + 1

    def put_back(self, messages: list[StoredMessage]) -> None:
        """Put loaded messages that had come back into their places among the direct ones.

        Requires: they are in order and their charge is made. O(these messages, and the direct ones before the last).
        """
        self.passed_end_min = self.passed_end
        self.own_direct()
        direct = self.direct
        merged: list[StoredMessage] = []
        for message in messages:
            while direct and direct[0][0] < message[0]:
                merged.append(direct.popleft())
            merged.append(message)
        direct.extendleft(reversed(merged))
        self.direct_bytes += charge_of_all(messages)

    def take_first(self, most: int) -> list[StoredMessage]:
        """Remove and return up to `most` of the first direct messages. The caller now has their charge. O(messages)."""
        direct = self.direct
        if len(direct) <= most:
            taken = list(direct)
            direct.clear()
            return taken
        pop: Callable[[], Any] = direct.popleft  # Any: with a type, machine code would make a new tuple of each
        return [pop() for _ in range(most)]

    def drop_first(self) -> int:
        """Remove the first direct message; return its charge, which the list no longer holds."""
        charge = charge_of(self.direct.popleft())
        self.direct_bytes -= charge
        return charge

    def evict_last(self) -> StoredMessage:
        """Move the direct end one back: the last direct message becomes a reference."""
        message = self.direct.pop()
        self.direct_bytes -= charge_of(message)
        self.references.add(message[0], message[0])
        return message

    def forget(self, gone: SequenceSet) -> int:
        """Remove these messages, wherever they are; return the charge of the direct ones. O(direct + runs)."""
        charge = 0
        if self.direct:
            direct = [message for message in self.direct if message[0] not in gone]
            charge = self.direct_bytes - charge_of_all(direct)
            self.direct = deque(direct)
            self.direct_bytes -= charge
        for first, last in gone:
            self.returned.remove(first, last)
            self.references.remove(first, last)
            if first <= self.frontier <= last:
                self.frontier = last + 1
        return charge

    def close(self) -> None:
        """Let go of everything and release the charge of a list that has ended, but for that of its messages.

        Requires: the charge of the direct messages is released.
        """
        self.direct.clear()
        self.direct_bytes = 0
        self.hand_back_direct()
        self.returned.close()
        self.references.close()

    @property
    def charge_bytes(self) -> int:
        """What the list should be charged apart from its messages, computed anew."""
        direct_bytes = DIRECT_BYTES if self.direct is not NO_MESSAGES else 0
        return LIST_BYTES + direct_bytes + self.returned.charge_bytes + self.references.charge_bytes

    @property
    def held_bytes(self) -> int:
        """The bytes that the runs take."""
        return self.returned.held_bytes + self.references.held_bytes

    def _check(self) -> None:
        assert not NO_MESSAGES and self.direct_bytes == charge_of_all(self.direct)
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
