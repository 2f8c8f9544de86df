"""The process grows by what the limit says: at most 1.25 times the limit and 40 MiB, whatever the messages are.

Each measurement is a process of its own, because an allocator serves much
from what earlier tests have freed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1024 * 1024

PROGRAM = """
import random, sys
import forebay
from forebay.cache.process.process_memory import unique_set_bytes

directory, limit, total, sizes, persistent = sys.argv[1:]
limit, total, sizes = int(limit), int(total), [int(size) for size in sizes.split(",")]
chance = random.Random(1)
noise = chance.randbytes(1 << 17)
before, most = unique_set_bytes(), 0

def messages(count):
    for _ in range(count):
        size = chance.choice(sizes)
        at = chance.randrange(len(noise) - size)
        yield forebay.Message(noise[at : at + size], persistent=persistent == "persistent")

with forebay.open(directory, memory_limit=limit, sync="never") as bay:
    mean = sum(sizes) // len(sizes)
    batch = max(4 * limit // (mean + 384) // 8, 16)  # eight of them wait: four times what the limit holds
    queues = [bay.queue(f"q{number}") for number in range(4)]
    consumers = [queue.subscribe() for queue in queues[:3]]
    sent = taken = waiting = number = 0
    while sent * mean < total:
        queue = queues[number % 4]
        for _ in range(-(-batch // 1000)):
            count = min(batch, 1000)
            waiting += len(queue.send_many(messages(count)))
            sent += count
        number += 1
        if number == 4:
            consumers.append(queues[3].subscribe())  # one comes late
        most = max(most, unique_set_bytes() - before)
        while waiting > 8 * batch:
            for consumer in consumers:
                deliveries = consumer.take(500, timeout=0.01)
                taken += len(deliveries)
                waiting -= len(deliveries)
                consumer.ack(deliveries)
        most = max(most, unique_set_bytes() - before)
    while waiting:
        for consumer in consumers:
            deliveries = consumer.take(500, timeout=0.01)
            taken += len(deliveries)
            waiting -= len(deliveries)
            consumer.ack(deliveries)
    most = max(most, unique_set_bytes() - before)
    memory = bay.statistics().memory
    assert taken == sent, (taken, sent)
    assert memory.held_bytes_max <= limit
    print(most, bay.statistics().tmp_storage.bytes_max, bay.statistics().tmp_storage.bytes)
"""

SIZES = {"16 B": "16", "1 KiB": "1024", "64 KiB": "65536", "mixed": "16,16,16,1024,1024,65536"}


def grown(tmp_path: Path, limit_bytes: int, total_bytes: int, sizes: str, kind: str) -> tuple[int, int, int]:
    """Most that the process grew by, most bytes that tmp-storage had, and what it has at the end."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(limit_bytes), str(total_bytes), sizes, kind]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    most, spilled, left = map(int, ended.stdout.split())
    return most, spilled, left


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["persistent", "non-persistent"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_the_process_grows_by_what_the_limit_says(tmp_path: Path, sizes: str, kind: str) -> None:
    limit_bytes = 8 * MIB
    total_bytes = 2 * MIB if sizes == "16" else 64 * MIB
    most, spilled, left = grown(tmp_path, limit_bytes, total_bytes, sizes, kind)
    assert most <= 1.25 * limit_bytes + 40 * MIB
    assert left == 0
    assert (spilled > 0) == (kind == "non-persistent"), "some of it must have been above the limit"


@pytest.mark.soak
@pytest.mark.parametrize("limit_bytes", [8 * MIB, 64 * MIB])
@pytest.mark.parametrize("kind", ["persistent", "non-persistent"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_the_process_grows_by_what_the_limit_says_in_a_long_run(
    tmp_path: Path, sizes: str, kind: str, limit_bytes: int
) -> None:
    total_bytes = 32 * MIB if sizes == "16" else 1024 * MIB
    most, _, left = grown(tmp_path, limit_bytes, total_bytes, sizes, kind)
    assert most <= 1.25 * limit_bytes + 40 * MIB
    assert left == 0


@pytest.mark.soak
def test_four_gibibytes_of_non_persistent_messages_go_through_64_mib(tmp_path: Path) -> None:
    limit_bytes = 64 * MIB
    most, spilled, left = grown(tmp_path, limit_bytes, 4096 * MIB, SIZES["mixed"], "non-persistent")
    assert most <= 1.25 * limit_bytes + 40 * MIB
    assert spilled > limit_bytes and left == 0
