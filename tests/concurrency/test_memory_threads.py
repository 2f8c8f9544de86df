"""The limit holds at every charge with eight threads that switch as often as the interpreter can."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from inside import inside

import forebay
from forebay import Message
from forebay.cache.accounting.budget import Holder
from forebay.dispatch.config.sizes import parse_size

KIB = 1024
LIMITS = ("4MiB", "6MiB", "8MiB")
BACKLOG_BYTES_MAX = 4096 * KIB
"""The backlog of each of three queues, of which a part is always on disk."""
THREADS = 8
SOAK_SEEDS = 100
SOAK_STEPS = 12_500
LEDGER_STEPS = 500


@pytest.fixture(autouse=True)
def _switches_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def checked(method: Callable[[Holder, int], object], above: list[int]) -> Callable[[Holder, int], object]:
    def check(self: Holder, charge_bytes: int) -> object:
        answer = method(self, charge_bytes)
        if self._budget.held_bytes > self._budget.limit_bytes:
            above.append(self._budget.held_bytes)
        return answer

    return check


@pytest.mark.parametrize(
    ("seed", "steps"),
    [(0, 100), *(pytest.param(seed, SOAK_STEPS, marks=pytest.mark.soak) for seed in range(1, SOAK_SEEDS + 1))],
)
def test_held_bytes_stay_below_the_limit_with_eight_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, steps: int
) -> None:
    """steps: of each thread. The limit is looked at inside each reservation, the ledger after each 500 steps of a
    thread, and what it is made of at the end of each seed."""
    above: list[int] = []
    for name in ("reserve", "reserve_for_progress"):
        monkeypatch.setattr(Holder, name, checked(getattr(Holder, name), above))
    errors: list[BaseException] = []
    done: list[int] = []
    with forebay.open(tmp_path, memory_limit=LIMITS[0], sync="never", max_file_length="4MiB") as bay:

        def work(number: int) -> None:
            try:
                done.append(_work(bay, Random(seed * THREADS + number), steps))
            except BaseException as error:  # handed to the test's own thread
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors and not above
        assert done == [steps] * THREADS
        memory = bay.statistics().memory
        assert memory.held_bytes <= memory.limit_bytes and memory.held_bytes_max <= parse_size("limit", LIMITS[-1])
        parts = inside(bay)
        parts.stop_threads()
        parts.audit()


def _work(bay: forebay.Forebay, random: Random, steps: int) -> int:
    """Sends, takes, settles, browses, subscribes, publishes and resizes, at random; each step is one of them."""
    queues = [bay.queue(name) for name in ("orders", "prices", "audit")]
    news = bay.topic("news")
    parts = inside(bay)
    consumer = random.choice(queues).subscribe(prefetch=random.choice((0, 10)))
    done = 0
    for done in range(1, steps + 1):
        dice = random.random()
        queue = random.choice(queues)
        if dice < 0.45 and queue.depth_bytes < BACKLOG_BYTES_MAX:
            if dice < 0.35:
                queue.send(bytes(random.randrange(4 * KIB)), persistent=random.random() < 0.7)
            else:
                queue.send_many(Message(bytes(random.randrange(4 * KIB))) for _ in range(20))
        elif dice < 0.9:
            deliveries = consumer.take(random.choice((1, 20)))
            if random.random() < 0.9:
                consumer.ack(deliveries)
            else:
                consumer.nack(deliveries)
        elif dice < 0.95:
            consumer.close()
            consumer = queue.subscribe(prefetch=random.choice((0, 10)))
        elif dice < 0.97:
            for _, _message in zip(range(5), queue.browse(), strict=False):
                pass
        elif dice < 0.975:
            bay.resize(random.choice(LIMITS))
        elif dice < 0.99:
            with news.subscribe() as reader:
                news.send(bytes(random.randrange(4 * KIB)))
                reader.ack(reader.take())
        else:
            consumer.prefetch = random.choice((0, 10))
        if not done % LEDGER_STEPS:
            with parts.lock:
                parts.budget._check()
    consumer.close()
    return done


def test_the_soak_is_of_ten_million_steps() -> None:
    assert SOAK_SEEDS * SOAK_STEPS * THREADS == 10_000_000
