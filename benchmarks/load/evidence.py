"""Evidence: which calls were confirmed, what was delivered, and what follows from it.

Kept by the supervisor, one byte a message, because it must outlive each kill.
It knows nothing of the store: it judges by what the library promised to its
caller. A call under way when the process was killed may have happened or not;
everything else has one right outcome.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from forebay.dispatch.sizes import MIB

from .events import N_MASK, PRODUCER_SHIFT
from .words import counted, mib

_UNSEEN: Final = 0
_TAKEN: Final = 1
_SETTLED: Final = 2
_IN_DOUBT: Final = 3  # its ack was under way at a kill

USS_FACTOR: Final = 1.25
USS_ALLOWANCE_BYTES: Final = 40 * MIB
"""What the process may grow by: USS_FACTOR times the limit, and this beside it."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the verdict."""

    name: str
    held: bool
    text: str


class Evidence:
    """One run of a scenario, over all its kills.

    counts: messages that each producer will send. lanes: for a single
    producer whose messages go to several lanes, the lane of each; None: a
    producer is a lane of its own.
    """

    def __init__(self, counts: Sequence[int], lanes: Sequence[int] | None = None) -> None:
        assert lanes is None or [len(lanes)] == list(counts)
        self.kills = 0
        self.settled_messages = 0
        self.held_bytes_max = 0
        self.limit_bytes = 0
        self.uss_bytes_max = 0
        self._counts = counts
        self._lanes = lanes
        self._states = [bytearray(count) for count in counts]
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
        """A consumer took these messages, in this order, found them undamaged, and acknowledges them now."""
        known = self._settling[consumer] = array("Q")
        for key in keys:
            producer, n = key >> PRODUCER_SHIFT, key & N_MASK
            if producer >= len(self._counts) or n >= self._sending[producer]:
                self._fault("never sent", producer, n)
                continue
            known.append(key)
            states = self._states[producer]
            if states[n] == _TAKEN:
                self._fault("in two hands at once", producer, n)
            elif states[n] == _SETTLED:
                self._fault("acknowledged before", producer, n)
            states[n] = _TAKEN
            lane = (consumer, producer if self._lanes is None else self._lanes[n])
            if n <= self._newest.get(lane, -1):
                self._fault("out of order", producer, n)
            self._newest[lane] = n

    def settled(self, consumer: int) -> None:
        keys = self._settling.pop(consumer)
        for key in keys:
            self._states[key >> PRODUCER_SHIFT][key & N_MASK] = _SETTLED
        self.settled_messages += len(keys)

    def damaged(self, text: str) -> None:
        self._faults.setdefault("damaged", _Fault(text)).count += 1

    def killed(self) -> None:
        """The process is gone: what was under way is in doubt, and consumers begin anew."""
        self.kills += 1
        for producer, (start, stop) in enumerate(zip(self._sent, self._sending, strict=True)):
            if start < stop:
                self._sends_in_doubt.append((producer, start, stop))
                self._sent[producer] = stop
        for keys in self._settling.values():
            self._acks_in_doubt += len(keys)
            for key in keys:
                self._states[key >> PRODUCER_SHIFT][key & N_MASK] = _IN_DOUBT
        self._settling.clear()
        self._newest.clear()

    def gauge(self, *, held_bytes_max: int, limit_bytes: int, uss_bytes: int) -> None:
        """Peaks of the memory; uss_bytes is the growth of the broker process since it imported the library."""
        self.held_bytes_max = max(self.held_bytes_max, held_bytes_max)
        self.limit_bytes = limit_bytes
        self.uss_bytes_max = max(self.uss_bytes_max, uss_bytes)

    @property
    def starts(self) -> list[int]:
        """Where each producer goes on after a kill: behind what was in doubt, so that no message is sent twice."""
        return list(self._sent)

    @property
    def sent_messages(self) -> int:
        """Confirmed, or in doubt at a kill."""
        return sum(self._sent)

    @property
    def all_sent(self) -> bool:
        return self._sent == list(self._counts)

    def judge(self, unfinished: str | None = None) -> list[Check]:
        """The verdict. unfinished: why the store was not drained, so that nothing is said of what is missing."""
        uss_limit_bytes = int(USS_FACTOR * self.limit_bytes) + USS_ALLOWANCE_BYTES
        return [
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
            Check(
                "memory",
                self.held_bytes_max <= self.limit_bytes,
                f"at most {mib(self.held_bytes_max)} of {mib(self.limit_bytes)} charged",
            ),
            Check(
                "process",
                self.uss_bytes_max <= uss_limit_bytes,
                f"the broker process grew by at most {mib(self.uss_bytes_max)}, allowed {mib(uss_limit_bytes)}",
            ),
        ]

    def _judge_count(self) -> Check:
        lost: _Fault | None = None
        kept_sends = doubtful_sends = 0
        for producer, start, stop in self._sends_in_doubt:
            doubtful_sends += stop - start
            kept_sends += stop - start - self._states[producer].count(_UNSEEN, start, stop)
        for producer, states in enumerate(self._states):
            doubtful = [(start, stop) for who, start, stop in self._sends_in_doubt if who == producer]
            n = states.find(_UNSEEN)
            while n != -1:
                if not any(start <= n < stop for start, stop in doubtful):
                    lost = lost or _Fault(_named(producer, n))
                    lost.count += 1
                n = states.find(_UNSEEN, n + 1)
        found = {
            "lost": lost,
            "never sent": self._faults.get("never sent"),
            "in two hands at once": self._faults.get("in two hands at once"),
        }
        faults = [f"{fault} {text}" for text, fault in found.items() if fault is not None]
        if faults:
            return Check("count", False, "; ".join(faults))
        text = f"{counted(self.sent_messages - doubtful_sends, 'confirmed message')}, each delivered"
        if doubtful_sends or self._acks_in_doubt:
            kept_acks = sum(states.count(_IN_DOUBT) for states in self._states)
            text += (
                f"\nunder way at a kill, so either is right: {doubtful_sends:,} sends, {kept_sends:,} kept; "
                f"{self._acks_in_doubt:,} acks, {kept_acks:,} kept"
            )
        return Check("count", True, text)

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
