"""Traffic for comparing rules about memory: the kinds that test replay, and small parts of the benchmarks'.

`python lab_traffic.py` prints the table of docs/decisions/0023-regret.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from recorded_bays import RecordedBay, burst, competing, pass_by, steady

from forebay import Message
from forebay.benchmarks.memory.traffic import SEND, TAKE, TRAFFICS, Traffic
from forebay.dispatch.consumer.consumer import Consumer
from forebay.dispatch.planning.lab import PlayedRules, play_rules
from forebay.store.disk.disk import File

MIB = 1 << 20
STEPS_A_SECOND = 200
BATCH_MESSAGES = 256


class Stage:
    """Plays a traffic of the benchmarks in a store whose clock advances with the steps."""

    def __init__(self, bay: RecordedBay, traffic: Traffic) -> None:
        self._bay = bay
        self._traffic = traffic
        self._consumers: dict[int, Consumer] = {}
        for number in range(len(traffic.consumers)) if traffic.is_topic else ():
            self._subscribe(number).close()

    def _subscribe(self, number: int) -> Consumer:
        destination = self._traffic.consumers[number]
        if self._traffic.is_topic:
            return self._bay.bay.topic(f"t{destination}").subscribe(durable=f"s{number}")
        return self._bay.queue(f"q{destination}").subscribe()

    def play(self, part: float) -> None:
        for at, (kind, who, messages) in enumerate(self._traffic.steps(part)):
            if kind == SEND:
                self._send(who, messages)
            elif kind == TAKE:
                self._take(who, messages)
            if not at % STEPS_A_SECOND:
                self._bay.pass_second()

    def _send(self, who: int, messages: int) -> None:
        bodies = (Message(bytes(self._traffic.body_bytes)) for _ in range(messages))
        if self._traffic.is_topic:
            self._bay.bay.topic(f"t{who}").send_many(bodies)
        else:
            self._bay.queue(f"q{who}").send_many(bodies)

    def _take(self, who: int, messages: int) -> None:
        if who not in self._consumers:
            self._consumers[who] = self._subscribe(who)
        missing = messages
        while missing:
            deliveries = self._consumers[who].take(min(missing, BATCH_MESSAGES))
            self._consumers[who].ack(deliveries)
            missing -= len(deliveries)
            self._bay.bay.step()


def of_benchmark(name: str, part: float) -> Callable[[RecordedBay], None]:
    [traffic] = [traffic for traffic in TRAFFICS if traffic.name == name]
    return lambda bay: Stage(bay, traffic).play(part)


LAB_TRAFFICS: Final[Mapping[str, tuple[Callable[[RecordedBay], None], int]]] = {
    "steady": (lambda bay: steady(bay, Random(2), 20), 4),
    "burst": (lambda bay: burst(bay, Random(1)), 4),
    "competing": (lambda bay: competing(bay, Random(1), 12), 4),
    "pass by": (lambda bay: pass_by(bay, Random(1), 20), 4),
    "deep backlogs": (of_benchmark("deep backlogs", 0.05), 8),
    "many queues": (of_benchmark("many queues", 0.05), 5),
    "late joiner": (of_benchmark("late joiner", 0.05), 5),
}
"""By name, what plays it, and the limit of 4, 5, 6 and 8 MiB under which ours has the largest regret."""


def recorded(name: str) -> File:
    play, limit_mib = LAB_TRAFFICS[name]
    bay = RecordedBay(memory_limit=limit_mib * MIB)
    play(bay)
    bay.bay.close()
    return bay.trace


def played(name: str) -> PlayedRules:
    [found] = play_rules(recorded(name)).limits
    return found


def table() -> str:
    found = {name: played(name) for name in LAB_TRAFFICS}
    head = [f"{name}, {found[name].limit_bytes // MIB} MiB" for name in found]
    lines = ["| read back, % | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    for at, rule in enumerate(next(iter(found.values())).rules):
        cells = [f"{100 * one.rules[at].read_back_bytes / one.delivered_bytes:.1f}" for one in found.values()]
        lines.append(f"| {rule.name} | " + " | ".join(cells) + " |")
    for title, values in (
        ("clairvoyant", [one.clairvoyant_bytes / one.delivered_bytes for one in found.values()]),
        ("regret beside the best", [one.regret for one in found.values()]),
        ("regret beside the clairvoyant", [one.clairvoyant_regret for one in found.values()]),
    ):
        lines.append(f"| {title} | " + " | ".join(f"{100 * value:.1f}" for value in values) + " |")
    lines.append("| takes that waited | " + " | ".join(f"{one.ours.waits:,}" for one in found.values()) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
