"""Traffic for comparing rules of the high watermark: consumers of known rates, a loader of known speed, time by hand.

`python watermark_traffic.py` prints the table of benchmarks/RESULTS.md. Everything but the rule is the library
itself, on a simulated disk: a miss is a delivery that had to be read by `take`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle, islice
from unittest.mock import patch

from simulated_bay import SimulatedBay

from forebay import Message
from forebay.cache import shares
from forebay.cache.charge import OVERHEAD_BYTES
from forebay.cache.shares import HIGH_WATERMARK_BYTES_MIN, SUPPLY_SECONDS, TARGET_LISTS_SHARE, high_watermarks

KIB = 1024
MESSAGE_BYTES = 8 * KIB
BODY_BYTES = MESSAGE_BYTES - OVERHEAD_BYTES
TICK_SECONDS = 0.02
LOAD_SECONDS = 0.03
"""What a load takes whatever it brings."""
LOADER_SHARE = 0.8
"""The consumers take so much of what the loader could bring if it did nothing but read."""
TICKS = 500

Rule = Callable[[int, Sequence[float | None]], list[int]]
Traffic = Callable[[int], list[float]]
"""Bytes a second of each consumer, at a tick."""


def fair_share(limit_bytes: int, rates: Sequence[float | None]) -> list[int]:
    """Each by itself: four seconds, at most an equal part."""
    return [shares.high_watermark_bytes(limit_bytes, len(rates), rate) for rate in rates]


def same_seconds(limit_bytes: int, rates: Sequence[float | None]) -> list[int]:
    """Where not all can have four seconds of supply, all that were measured get the same number of seconds."""
    share = int(limit_bytes * TARGET_LISTS_SHARE) // len(rates)
    least = min(share, HIGH_WATERMARK_BYTES_MIN)
    measured = sorted(rate for rate in rates if rate is not None)
    room, total, seconds = float(share * len(measured)), sum(measured), SUPPLY_SECONDS
    for rate in measured:
        if not total or (seconds := min(room / total, SUPPLY_SECONDS)) * rate >= least:
            break
        room -= least
        total -= rate
    return [share if rate is None else max(int(rate * seconds), least) for rate in rates]


def fastest_first(limit_bytes: int, rates: Sequence[float | None]) -> list[int]:
    """Four seconds for the fastest, then for the next, as far as memory goes; an eighth of an equal part for each."""
    room = int(limit_bytes * TARGET_LISTS_SHARE)
    least = room // len(rates) // 8
    granted = [least] * len(rates)
    room -= least * len(rates)
    for number in sorted(range(len(rates)), key=lambda number: -(rates[number] or 0.0)):
        more = min(room, max(int((rates[number] or 0.0) * SUPPLY_SECONDS) - least, 0))
        granted[number] += more
        room -= more
    return granted


def evenly(tick: int) -> list[float]:
    return [800.0 * KIB] * 8


def one_fast(tick: int) -> list[float]:
    return [5600.0 * KIB, *[112.0 * KIB] * 7]


def steps(tick: int) -> list[float]:
    return [3200.0 * KIB, 1600.0 * KIB, 800.0 * KIB, *[160.0 * KIB] * 5]


def changing(tick: int) -> list[float]:
    """Every three seconds another one is the fast one."""
    fast = int(tick * TICK_SECONDS / 3.0)
    return list(islice(cycle(one_fast(tick)), 8 - fast % 8, 16 - fast % 8))


RULES: dict[str, Rule] = {
    "equal parts": fair_share,
    "least wants first (taken)": high_watermarks,
    "same seconds": same_seconds,
    "fastest first": fastest_first,
}
TRAFFICS: dict[str, Traffic] = {
    "8 equal": evenly,
    "1 fast, 7 slow": one_fast,
    "3 steps, 5 slow": steps,
    "the fast one changes": changing,
}


def miss_share(rule: Rule, traffic: Traffic, limit: str = "16MiB") -> float:
    """Misses a delivery, of all consumers together, after the first second."""
    bay = SimulatedBay(memory_limit=limit)
    count = len(traffic(0))
    most = [max(traffic(tick)[number] for tick in range(0, TICKS, 10)) for number in range(count)]
    for number, rate in enumerate(most):
        bay.queue(f"q{number}").send_many(
            Message(bytes(BODY_BYTES)) for _ in range(int(rate * TICK_SECONDS * TICKS / MESSAGE_BYTES) + 10)
        )
    bay.reopen()
    with patch("forebay.dispatch.core.lists.high_watermarks", rule):
        consumers = [bay.queue(f"q{number}").subscribe(prefetch=0) for number in range(count)]
        bay.engine.loader.step()
        credit = [0.0] * count
        read_bytes = 0.0
        delivered = missed = 0
        for tick in range(TICKS):
            rates = traffic(tick)
            bay.clock.advance(TICK_SECONDS)
            bay.engine.housekeep()
            # The loader: as many loads as it has time for, with what it could not finish carried on.
            speed = sum(rates) / LOADER_SHARE
            read_bytes += speed * TICK_SECONDS
            while read_bytes > 0:
                held = bay.engine.budget.held_bytes
                if not bay.engine.loader.step():
                    read_bytes = 0.0
                    break
                read_bytes -= max(bay.engine.budget.held_bytes - held, 0) + LOAD_SECONDS * speed
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
