"""Makes the directories of twenty brokers with various problems, for the fleet report to find.

    python build_fleet.py DIRECTORY

Most brokers keep up, and clean up. In some a few messages are stuck among many settled ones, in some a durable
subscription has been offline for long, one was killed in the middle of a write, and one has a damaged data log. About
40 MiB, some seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Final

import forebay
from forebay import Forebay, Message
from forebay.pipeline.loading import load_local
from forebay.store.environment.clock import SystemClock

BROKERS: Final = 20
HOUR_MS: Final = 3_600_000
SETTINGS: Final = {"memory_limit": "16MiB", "sync": "never", "max_file_length": "256KiB", "background": False}


def build(directory: Path, seed: int = 1) -> None:
    """Make all directories. The same seed makes the same messages."""
    directory.mkdir(parents=True, exist_ok=True)
    now_ms = SystemClock().time_ms()
    for number in range(1, BROKERS + 1):
        random = Random(seed * 1000 + number)
        name = f"broker-{number:02}"
        load_the_past(directory, name, random, now_ms)
        with forebay.open(directory, broker_name=name, **SETTINGS) as bay:  # type: ignore[arg-type]
            send_and_settle(bay, random, is_stuck=number in (3, 7, 12), is_lagging=number in (5, 7, 16))
            if number not in (3, 5, 7, 12, 14, 16):
                bay.cleanup()
        if number == 9:
            _tear(directory / name, random)
        if number == 14:
            damage(directory / name)


def load_the_past(directory: Path, name: str, random: Random, now_ms: int) -> None:
    """Load orders of the last two days in bulk. Their timestamps tell how long they have been waiting."""
    hours, count = random.choice((1, 2, 48)), random.randrange(800, 4000)
    rows = [
        {
            "destination": random.choice(("orders", "orders", "billing")),
            "body": random.randbytes(random.randrange(200, 2000)),
            "timestamp": now_ms - int(hours * HOUR_MS * (1 - n / count)),
        }
        for n in range(count)
    ]
    load_local(rows, directory, load_id="the-past", broker_name=name)


def send_and_settle(bay: Forebay, random: Random, *, is_stuck: bool, is_lagging: bool) -> None:
    """Send to a topic and two queues, and acknowledge most of it.

    is_stuck: leaves some messages in the middle of the queues. is_lagging: one subscription acknowledges nothing.
    """
    prices = bay.topic("prices")
    audit = prices.subscribe(durable="audit")
    dashboard = prices.subscribe(durable="dashboard")
    for _ in range(random.randrange(4, 12)):
        prices.send_many(Message(random.randbytes(1500), {"symbol": "TEA"}) for _ in range(100))
        if not is_lagging:
            audit.ack(audit.take(1000))
        dashboard.ack(dashboard.take(random.choice((90, 1000))))
    for name in ("orders", "billing"):
        with bay.queue(name).subscribe(prefetch=0) as consumer:
            while taken := consumer.take(500):
                # A stuck store leaves one message in two hundred; a healthy one leaves the last few.
                done = [delivery for delivery in taken if not (is_stuck and random.random() < 0.005)]
                consumer.ack(done if is_stuck or random.random() < 0.9 else done[: len(done) // 2])
    bay.checkpoint()


def _newest(root: Path) -> Path:
    return max((root / "journal").glob("data-*.log"), key=lambda path: int(path.stem.removeprefix("data-")))


def _tear(root: Path, random: Random) -> None:
    """Append half a record, as a power cut does. None of it was confirmed."""
    with _newest(root).open("ab") as file:
        file.write(random.randbytes(700))


def damage(root: Path) -> None:
    """Flip a bit of an old data log."""
    path = min((root / "journal").glob("data-*.log"), key=lambda found: int(found.stem.removeprefix("data-")))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x20
    path.write_bytes(bytes(content))


if __name__ == "__main__":
    build(Path(sys.argv[1]))
