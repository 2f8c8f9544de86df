"""Streams and loads whose drivers and workers are killed again and again: each row comes once."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from load_program import ROWS
from spark_process import SparkProcess

import forebay
from forebay import Forebay, Message
from forebay.store.disk.disk import OsDisk
from forebay.store.environment.clock import SystemClock
from forebay.store.maintenance.leases import Lease, write_lease

pytest.importorskip("pyspark")

KILLS = int(os.environ.get("FOREBAY_SPARK_KILLS", "100"))
"""Kills in each of the two tests."""
WORKERS_A_DRIVER = 24
"""About the number of workers that are killed in the life of one driver, which takes long to start."""
PROGRAMS = Path(__file__).parents[1] / "support"
LOADS_AT_ONCE = 40
"""Loads that a driver is asked for. A kill may end it before."""
PATIENCE_SECONDS = 600
MESSAGES_A_BATCH = 300
"""Somewhat more than one has, so that there is always another: or else nobody would be killed any more."""


def moment(random: Random) -> float:
    """How long the next one lives: some die before they have begun, some while they work, some behind that."""
    return random.random() * random.choice((0.2, 2, 6))


def tail_of(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:]


# ---------------------------------------------------------------------- a stream


def batches(root: Path) -> list[Path]:
    return sorted((root / "out").glob("batch-*.json"), key=lambda path: int(path.stem.split("-")[1]))


def go_on(bay: Forebay, random: Random, sent: Counter[str]) -> None:
    """Send and take some messages, and do background work."""
    name = random.choice(("orders", "audit"))
    count = random.randrange(1, 40)
    bay.queue(name).send_many(Message(bytes(random.randrange(600))) for _ in range(count))
    sent[name] += count
    with bay.queue(name).subscribe() as consumer:
        consumer.ack(consumer.take(random.randrange(1, 60)))
    bay.step()
    if random.random() < 0.2:
        bay.cleanup()


def stream(root: Path, mode: str) -> SparkProcess:
    arguments = [str(root / name) for name in ("data", "checkpoint", "out")]
    return SparkProcess(PROGRAMS / "stream_program.py", root / "log", *arguments, mode)


def kill_while_it_streams(root: Path, bay: Forebay, random: Random, sent: Counter[str], killed: Counter[str]) -> None:
    """One life of a driver: a worker is killed behind each batch or two, at any moment, and it at last."""
    query = stream(root, "on")
    for _ in range(random.randrange(1, 2 * WORKERS_A_DRIVER)):
        wanted, deadline = len(batches(root)) + random.randrange(2), time.monotonic() + PATIENCE_SECONDS
        while len(batches(root)) <= wanted and query.is_running:
            assert time.monotonic() < deadline, tail_of(root / "log")
            if sent.total() < MESSAGES_A_BATCH * (len(batches(root)) + 4):
                go_on(bay, random, sent)
            query.wait(0.05)
        query.wait(moment(random))
        if not query.is_running or killed.total() >= KILLS:
            break
        killed["worker"] += query.kill_a_worker(random)
    killed["driver"] += query.is_running
    query.kill()


@pytest.mark.soak
def test_each_row_comes_once_whoever_is_killed(tmp_path: Path) -> None:
    random = Random(1)
    sent: Counter[str] = Counter()
    killed: Counter[str] = Counter()
    (tmp_path / "out").mkdir()
    with forebay.open(
        tmp_path / "data", memory_limit="8MiB", sync="never", max_file_length="64KiB", background=False
    ) as bay:
        # Nothing may be deleted before the stream has begun.
        write_lease(
            OsDisk(str(tmp_path / "data" / "localhost")), Lease("kills", 1, 64, SystemClock().time_ms() + 3_600_000)
        )
        go_on(bay, random, sent)
        while killed.total() < KILLS:
            kill_while_it_streams(tmp_path, bay, random, sent, killed)
        last = stream(tmp_path, "now")
        last.wait(PATIENCE_SECONDS)
        exit_code = last.process.poll()
        last.kill()
        assert exit_code == 0, tail_of(tmp_path / "log")
    assert not (tmp_path / "out" / "differs").exists()
    rows = [row for path in batches(tmp_path) for row in json.loads(path.read_text())]
    messages = Counter((row[3], row[4]) for row in rows if row[2] == "message")
    assert messages == Counter((name, n) for name, count in sent.items() for n in range(count))
    assert max(Counter((row[0], row[1], row[2], row[3], row[4]) for row in rows).values()) == 1
    assert len({row[0] for row in rows}) > 3
    print(f"stream: {dict(killed)} killed, {len(batches(tmp_path))} batches, {messages.total()} messages, each once")


# ---------------------------------------------------------------------- loads


def kill_while_it_loads(root: Path, random: Random, killed: Counter[str], loads: int) -> bool:
    """One life of a driver. True: it came to its end."""
    done = root / "done"
    finished = done.read_text().splitlines()
    first = max(1, len(set(finished)) - 1)  # the last one that was done is asked for again
    driver = SparkProcess(
        PROGRAMS / "load_program.py", root / "log", str(root / "data"), str(done), str(first), str(loads)
    )
    begun, before = len(finished), killed.total()
    for _ in range(random.randrange(1, 2 * WORKERS_A_DRIVER)):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while killed.total() < KILLS and driver.is_running:
            assert time.monotonic() < deadline, tail_of(root / "log")
            driver.wait(moment(random))
            if len(done.read_text().splitlines()) > begun and driver.kill_a_worker(random):
                killed["worker"] += 1
                break
    driver.wait(moment(random) if killed.total() < KILLS else PATIENCE_SECONDS)
    assert driver.is_running or driver.process.poll() == 0 or killed.total() > before, tail_of(root / "log")
    killed["driver"] += driver.is_running
    driver.kill()
    return driver.process.poll() == 0


@pytest.mark.soak
def test_each_load_comes_once_whoever_is_killed(tmp_path: Path) -> None:
    random = Random(2)
    killed: Counter[str] = Counter()
    (tmp_path / "data").mkdir()
    (tmp_path / "done").touch()
    loads = LOADS_AT_ONCE
    while killed.total() < KILLS:
        if kill_while_it_loads(tmp_path, random, killed, loads):
            loads += LOADS_AT_ONCE
    while not kill_while_it_loads(tmp_path, random, killed, loads):
        pass
    with forebay.open(tmp_path / "data", memory_limit="16MiB", sync="never") as bay:
        bodies = Counter(message.body for name in bay.destinations() for message in bay.queue(name).browse())
    assert bodies == Counter(b"%d:%d" % (load, row) for load in range(1, loads + 1) for row in range(ROWS))
    print(f"loads: {dict(killed)} killed, {loads} loads of {ROWS} rows, each once")
