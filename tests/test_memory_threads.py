"""The limit holds at every charge with eight threads that switch as often as the interpreter can."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

import forebay
from forebay import Closed, Message
from forebay.cache.budget import Holder

KIB = 1024
LIMIT = "4MiB"
THREADS = 8


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
    [(0, 100), *(pytest.param(seed, 12_500, marks=pytest.mark.soak) for seed in range(1, 101))],
)
def test_held_bytes_stay_below_the_limit_with_eight_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, steps: int
) -> None:
    """steps: of each thread; a hundred seeds of the soak are ten million together."""
    above: list[int] = []
    for name in ("reserve", "reserve_last"):
        monkeypatch.setattr(Holder, name, checked(getattr(Holder, name), above))
    errors: list[BaseException] = []
    with forebay.open(tmp_path, memory_limit=LIMIT, sync="never", max_file_length="4MiB") as bay:

        def work(number: int) -> None:
            try:
                _work(bay, Random(seed * THREADS + number), steps)
            except BaseException as error:  # handed to the test's own thread
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors and not above
        memory = bay.statistics().memory
        assert memory.held_bytes <= memory.held_bytes_max <= memory.limit_bytes
        engine = bay._engine
        engine._is_stopping = True
        engine._load_wanted.set()
        engine._housekeeping_wanted.set()
        for thread in engine._threads:
            thread.join()
        engine.audit()


def _work(bay: forebay.Forebay, random: Random, steps: int) -> None:
    """Sends, takes, settles, browses, subscribes and resizes, at random."""
    queues = [bay.queue(name) for name in ("orders", "prices", "audit")]
    consumer = random.choice(queues).subscribe(prefetch=random.choice((0, 10)))
    for _ in range(steps):
        dice = random.random()
        queue = random.choice(queues)
        if dice < 0.35:
            if queue.depth_bytes < 4 << 20:
                queue.send(bytes(random.randrange(4 * KIB)), persistent=random.random() < 0.7)
        elif dice < 0.45:
            if queue.depth_bytes < 4 << 20:
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
            bay.resize(random.choice(("4MiB", "6MiB", "8MiB")))
        elif dice < 0.98:
            try:
                bay.topic("news").subscribe().close()
            except Closed:
                return
    consumer.close()
