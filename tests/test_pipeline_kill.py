"""A stream whose driver and workers are killed again and again: each row comes once, from a store that goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import psutil
import pytest

import forebay
from forebay import Forebay, Message
from forebay.store.clock import SystemClock
from forebay.store.disk import OsDisk
from forebay.store.leases import Lease, write_lease

pytest.importorskip("pyspark")

KILLS = int(os.environ.get("FOREBAY_STREAM_KILLS", "20"))
PROGRAM = Path(__file__).parent / "stream_program.py"
PATIENCE_SECONDS = 240
MESSAGES_A_KILL = 600


class Query:
    """The program in a session of its own, so that one signal ends driver and JVM."""

    def __init__(self, root: Path, mode: str) -> None:
        self._log = (root / "log").open("ab")
        out = root / "out"
        out.mkdir(exist_ok=True)
        arguments = [str(root / "data"), str(root / "checkpoint"), str(out), mode]
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments], stdout=self._log, stderr=self._log, start_new_session=True
        )

    def wait(self, seconds: float) -> None:
        """Until it ends by itself, or that long."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def kill(self) -> None:
        children = []
        with suppress(psutil.Error):
            children = psutil.Process(self.process.pid).children(recursive=True)  # the JVM has a session of its own
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for child in children:
            with suppress(psutil.Error):
                child.kill()
        self.process.wait()
        self._log.close()

    def kill_a_worker(self, random: Random) -> bool:
        with suppress(psutil.Error):
            children = psutil.Process(self.process.pid).children(recursive=True)
            workers = [child for child in children if "pyspark.daemon" in " ".join(child.cmdline())]
            if workers:
                random.choice(workers).kill()
                return True
        return False


def batches(root: Path) -> list[Path]:
    return sorted((root / "out").glob("batch-*.json"), key=lambda path: int(path.stem.split("-")[1]))


def go_on(bay: Forebay, random: Random, sent: Counter[str]) -> None:
    """Some traffic, and what a store does by itself."""
    name = random.choice(("orders", "audit"))
    count = random.randrange(1, 40)
    bay.queue(name).send_many(Message(bytes(random.randrange(600))) for _ in range(count))
    sent[name] += count
    with bay.queue(name).subscribe() as consumer:
        consumer.ack(consumer.take(random.randrange(1, 60)))
    bay.step()
    if random.random() < 0.2:
        bay.cleanup()


@pytest.mark.soak
def test_each_row_comes_once_whoever_is_killed(tmp_path: Path) -> None:
    random = Random(1)
    sent: Counter[str] = Counter()
    killed: Counter[str] = Counter()
    with forebay.open(
        tmp_path / "data", memory_limit="8MiB", sync="never", max_file_length="64KiB", background=False
    ) as bay:
        # Nothing may be deleted before the stream has begun.
        write_lease(
            OsDisk(str(tmp_path / "data" / "localhost")), Lease("kills", 1, 64, SystemClock().time_ms() + 3_600_000)
        )
        go_on(bay, random, sent)
        while killed.total() < KILLS:
            query = Query(tmp_path, "on")
            wanted, deadline = len(batches(tmp_path)) + random.randrange(3), time.monotonic() + PATIENCE_SECONDS
            moment = random.random() * 2
            while len(batches(tmp_path)) <= wanted and query.process.poll() is None:
                assert time.monotonic() < deadline, (tmp_path / "log").read_text(errors="replace")[-3000:]
                if sent.total() < MESSAGES_A_KILL * (killed.total() + 1):
                    go_on(bay, random, sent)
                query.wait(0.05)
            query.wait(moment)
            if random.random() < 0.3 and query.kill_a_worker(random):
                killed["worker"] += 1
                query.wait(moment)
            query.kill()
            killed["driver"] += 1
        last = Query(tmp_path, "now")
        last.wait(PATIENCE_SECONDS)
        exit_code = last.process.poll()
        last.kill()
        assert exit_code == 0, (tmp_path / "log").read_text(errors="replace")[-3000:]
    assert not (tmp_path / "out" / "differs").exists()
    rows = [row for path in batches(tmp_path) for row in json.loads(path.read_text())]
    messages = Counter((row[3], row[4]) for row in rows if row[2] == "message")
    assert messages == Counter((name, n) for name, count in sent.items() for n in range(count))
    assert max(Counter((row[0], row[1], row[2], row[3], row[4]) for row in rows).values()) == 1
    assert len({row[0] for row in rows}) > 3
