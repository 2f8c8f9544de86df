"""Evidence: which calls were confirmed, what was delivered, and what follows from it.

The supervisor keeps the evidence, one byte for each message, because it must outlive each kill. It knows nothing of the
store and judges only by what the library promised to its caller. A call that was under way at a kill may have happened
or not. Everything else has one right outcome.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from .events import CAME_AGAIN, N_MASK, PRODUCER_SHIFT
from .readers import Readers
from .words import counted

_UNSEEN: Final = 0
_TAKEN: Final = 1
_SETTLED: Final = 2
_IN_DOUBT: Final = 3  # its ack was under way at a kill
_LEFT: Final = 4  # it was still in its queue when all consumers were through


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the verdict."""

    name: str
    held: bool
    text: str


class Evidence:
    """The evidence of one run, over all its kills.

    counts: messages that each producer sends. readers: who gets each message. lane: as in Workload; None: each producer
    is one lane. unwanted: number of messages that no consumer asks for.
    """

    def __init__(
        self,
        counts: Sequence[int],
        readers: Readers,
        lane: Callable[[int, int], int] | None = None,
        unwanted: int = 0,
    ) -> None:
        self.kills = 0
        self.settled_messages = 0
        self.purged_messages = 0
        # Messages of all queues at the end, as the store says.
        self.depth = 0
        self._counts = counts
        self._readers = readers
        self._lane = lane
        self._unwanted = unwanted
        self._left = 0
        # By reader and producer, the state of each message.
        self._states = [
            {producer: bytearray(counts[producer]) for producer in producers} for producers in readers.producers
        ]
        self._sent = [0] * len(counts)
        self._sending = [0] * len(counts)
        self._sends_in_doubt: list[tuple[int, int, int]] = []
        self._acks_in_doubt = 0
        self._settling: dict[int, array[int]] = {}
        self._newest: dict[tuple[int, int], int] = {}
        self._faults: dict[str, _Fault] = {}

    def sending(self, producer: int, stop: int) -> None:
        self._sending[producer] = stop

    def sent(self, producer: int) -> None:
        self._sent[producer] = self._sending[producer]

    def settling(self, consumer: int, keys: array[int]) -> None:
        """Note that a consumer took messages in this order, found them undamaged, and acknowledges them now."""
        known = self._settling[consumer] = array("Q")
        states, wants = self._states[self._readers.of[consumer]], self._readers.wants
        for marked in keys:
            key = marked & ~CAME_AGAIN
            producer, n = key >> PRODUCER_SHIFT, key & N_MASK
            if not self._hold(states, producer, n, _TAKEN):
                continue
            known.append(key)
            if not wants(consumer, producer, n):
                self._fault("not asked for", producer, n)
            if marked == key:
                lane = (consumer, producer if self._lane is None else self._lane(producer, n))
                if n <= self._newest.get(lane, -1):
                    self._fault("out of order", producer, n)
                self._newest[lane] = n

    def left(self, keys: array[int]) -> None:
        """Note messages that were found undamaged in their queues when all consumers were through."""
        for key in keys:
            self._left += self._hold(self._states[0], key >> PRODUCER_SHIFT, key & N_MASK, _LEFT)

    def _hold(self, reader: dict[int, bytearray], producer: int, n: int, state: int) -> bool:
        """Note that a reader got a message, and any fault of it. False: this message is not for the reader."""
        if producer not in reader or n >= self._sending[producer]:
            self._fault("never sent", producer, n)
            return False
        states = reader[producer]
        if states[n] in (_TAKEN, _LEFT):
            self._fault("in two hands at once", producer, n)
        elif states[n] == _SETTLED:
            self._fault("acknowledged before", producer, n)
        states[n] = state
        return True

    def settled(self, consumer: int) -> None:
        keys = self._settling.pop(consumer)
        states = self._states[self._readers.of[consumer]]
        for key in keys:
            states[key >> PRODUCER_SHIFT][key & N_MASK] = _SETTLED
        self.settled_messages += len(keys)

    def damaged(self, text: str) -> None:
        self._faults.setdefault("damaged", _Fault(text)).count += 1

    def killed(self) -> None:
        """Note that the process was killed: calls under way are in doubt, and consumers begin anew."""
        self.kills += 1
        for producer, (start, stop) in enumerate(zip(self._sent, self._sending, strict=True)):
            if start < stop:
                self._sends_in_doubt.append((producer, start, stop))
                self._sent[producer] = stop
        for consumer, keys in self._settling.items():
            self._acks_in_doubt += len(keys)
            states = self._states[self._readers.of[consumer]]
            for key in keys:
                states[key >> PRODUCER_SHIFT][key & N_MASK] = _IN_DOUBT
        self._settling.clear()
        self._newest.clear()

    @property
    def starts(self) -> list[int]:
        """Where each producer goes on after a kill: behind messages in doubt, so that none is sent twice."""
        return list(self._sent)

    @property
    def sent_messages(self) -> int:
        """Number of messages whose send is confirmed, or was in doubt at a kill."""
        return sum(self._sent)

    @property
    def all_sent(self) -> bool:
        return self._sent == list(self._counts)

    def judge(self, unfinished: str | None = None) -> list[Check]:
        """Return the verdict. unfinished: why the store was not drained; then missing messages are no fault."""
        checks = [
            self._judge_count() if unfinished is None else Check("finished", False, unfinished),
            self._judge(
                "order", "out of order", "each consumer saw every producer's messages in the order of their sending"
            ),
            self._judge("checksum", "damaged", "every body and header arrived as it was sent"),
            self._judge(
                "acknowledged",
                "acknowledged before",
                f"no acknowledged message came again ({counted(self.kills, 'kill')})",
            ),
            self._judge("selected", "not asked for", "no consumer got what it had not asked for"),
        ]
        return checks if unfinished is not None else [*checks, self._judge_depth()]

    def _judge_depth(self) -> Check:
        if self._left > self._unwanted or self.depth != self._left:
            return Check(
                "depth", False, f"{self.depth:,} in the queues, {self._left:,} found, wanted {self._unwanted:,}"
            )
        if not self._unwanted:
            return Check("depth", True, "nothing is left")
        return Check("depth", True, f"{counted(self._left, 'message')} left that nobody asked for, found whole")

    def _judge_count(self) -> Check:
        doubtful_sends = kept_sends = 0
        for producer, start, stop in self._sends_in_doubt:
            doubtful_sends += stop - start
            kept_sends += sum(self._is_kept(producer, n) for n in range(start, stop))
        kept_acks = sum(states.count(_IN_DOUBT) for reader in self._states for states in reader.values())
        missing = self._missing()
        purged = self.purged_messages
        found = {
            "lost": missing if missing is not None and missing.count > purged else None,
            "never sent": self._faults.get("never sent"),
            "in two hands at once": self._faults.get("in two hands at once"),
        }
        faults = [f"{fault} {text}" for text, fault in found.items() if fault is not None]
        delivered = self.sent_messages - doubtful_sends - purged
        if purged > (missing.count if missing else 0) + doubtful_sends - kept_sends + kept_acks:
            faults.append(f"{counted(purged, 'message')} purged, of which some were delivered")
        if faults:
            return Check("count", False, "; ".join(faults))
        text = f"{counted(delivered, 'confirmed message')}, each delivered"
        if self._readers.subscriptions:
            text += f" to each of {counted(self._readers.subscriptions, 'subscription')}"
        if self._unwanted:
            text += " or left"
        if purged:
            text += f"; {purged:,} purged"
        if doubtful_sends or self._acks_in_doubt:
            text += (
                f"\nunder way at a kill, so either is right: {doubtful_sends:,} sends, {kept_sends:,} kept; "
                f"{self._acks_in_doubt:,} acks, {kept_acks:,} kept"
            )
        return Check("count", True, text)

    def _is_kept(self, producer: int, n: int) -> bool:
        """Return whether any reader got a message."""
        return any(producer in reader and reader[producer][n] != _UNSEEN for reader in self._states)

    def _missing(self) -> _Fault | None:
        """Return messages that a reader did not get and that are in no queue, though their send was confirmed.

        A send in doubt is for all readers or for none: what one of them got is missing where another did not.
        """
        missing: _Fault | None = None
        for reader in self._states:
            for producer, states in reader.items():
                doubtful = [(start, stop) for who, start, stop in self._sends_in_doubt if who == producer]
                n = states.find(_UNSEEN)
                while n != -1:
                    if not any(start <= n < stop for start, stop in doubtful) or self._is_kept(producer, n):
                        missing = missing or _Fault(_named(producer, n))
                        missing.count += 1
                    n = states.find(_UNSEEN, n + 1)
        return missing

    def _judge(self, name: str, fault: str, text: str) -> Check:
        found = self._faults.get(fault)
        return Check(name, found is None, text if found is None else f"{found} {fault}")

    def _fault(self, fault: str, producer: int, n: int) -> None:
        self._faults.setdefault(fault, _Fault(_named(producer, n))).count += 1


@dataclass(slots=True)
class _Fault:
    first: str
    count: int = 0

    def __str__(self) -> str:
        return f"{counted(self.count, 'message')} (first: {self.first})"


def _named(producer: int, n: int) -> str:
    return f"producer {producer}, n {n}"
