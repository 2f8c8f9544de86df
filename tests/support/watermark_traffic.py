"""Traffic for comparing rules of the high watermark: consumers of known rates, a loader of known speed, time by hand.

`python watermark_traffic.py` prints the table of benchmarks/RESULTS.md. Everything but the rule is the library
itself, on a simulated disk: a miss is a delivery that had to be read by `take`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice

from simulated_bay import SimulatedBay

from forebay import Message
from forebay.cache.accounting.charge import OVERHEAD_BYTES
from forebay.dispatch.core.memory.memory_rule import MemoryRule
from forebay.dispatch.planning.rules import EqualParts, FastestFirst, SameSeconds

KIB = 1024
MESSAGE_BYTES = 8 * KIB
BODY_BYTES = MESSAGE_BYTES - OVERHEAD_BYTES
TICK_SECONDS = 0.02
LOAD_SECONDS = 0.03
"""The time that a load takes, however much it brings."""
LOADER_SHARE = 0.8
"""Rate of all consumers, as a share of the rate at which the loader could read without pause."""
TICKS = 500

Traffic = Callable[[int], list[float]]
"""Returns the bytes a second of each consumer at a tick."""


def evenly(tick: int) -> list[float]:
    return [800.0 * KIB] * 8


def one_fast(tick: int) -> list[float]:
    return [5600.0 * KIB, *[112.0 * KIB] * 7]


def steps(tick: int) -> list[float]:
    return [3200.0 * KIB, 1600.0 * KIB, 800.0 * KIB, *[160.0 * KIB] * 5]


def changing(tick: int) -> list[float]:
    """Return rates with one fast consumer, another one every three seconds."""
    fast = int(tick * TICK_SECONDS / 3.0)
    return list(islice(cycle(one_fast(tick)), 8 - fast % 8, 16 - fast % 8))


RULES: dict[str, MemoryRule] = {
    "equal parts": EqualParts(),
    "least wants first (taken)": MemoryRule(),
    "same seconds": SameSeconds(),
    "fastest first": FastestFirst(),
}
TRAFFICS: dict[str, Traffic] = {
    "8 equal": evenly,
    "1 fast, 7 slow": one_fast,
    "3 steps, 5 slow": steps,
    "the fast one changes": changing,
}


def miss_share(rule: MemoryRule, traffic: Traffic, limit: str = "16MiB") -> float:
    """Return the misses for each delivery, over all consumers, after the first second."""
    bay = SimulatedBay(memory_limit=limit, memory_rule=rule)
    count = len(traffic(0))
    most = [max(traffic(tick)[number] for tick in range(0, TICKS, 10)) for number in range(count)]
    for number, rate in enumerate(most):
        bay.queue(f"q{number}").send_many(
            Message(bytes(BODY_BYTES)) for _ in range(int(rate * TICK_SECONDS * TICKS / MESSAGE_BYTES) + 10)
        )
    bay.reopen()
    consumers = [bay.queue(f"q{number}").subscribe(prefetch=0) for number in range(count)]
    bay.loader.step()
    credit = [0.0] * count
    read_bytes = 0.0
    delivered = missed = 0
    for tick in range(TICKS):
        rates = traffic(tick)
        bay.clock.advance(TICK_SECONDS)
        bay.housekeep()
        # The loader: as many loads as it has time for, with what it could not finish carried on.
        speed = sum(rates) / LOADER_SHARE
        read_bytes += speed * TICK_SECONDS
        while read_bytes > 0:
            held = bay.budget.held_bytes
            if not bay.loader.step():
                read_bytes = 0.0
                break
            read_bytes -= max(bay.budget.held_bytes - held, 0) + LOAD_SECONDS * speed
        for number, consumer in enumerate(consumers):
            credit[number] += rates[number] * TICK_SECONDS / MESSAGE_BYTES
            while (wanted := int(credit[number])) and (deliveries := consumer.take(wanted)):
                credit[number] -= len(deliveries)
                consumer.ack(deliveries)
                delivered += len(deliveries) if tick * TICK_SECONDS > 1 else 0
        if tick * TICK_SECONDS <= 1:
            missed = sum(consumer.statistics().misses for consumer in consumers)
    return (sum(consumer.statistics().misses for consumer in consumers) - missed) / delivered


def table() -> str:
    lines = ["| rule | " + " | ".join(TRAFFICS) + " |", "|---" * (len(TRAFFICS) + 1) + "|"]
    for name, rule in RULES.items():
        shares = [f"{miss_share(rule, traffic):.2%}" for traffic in TRAFFICS.values()]
        lines.append(f"| {name} | " + " | ".join(shares) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
