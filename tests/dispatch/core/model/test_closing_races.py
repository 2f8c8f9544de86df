"""Queues and topics that are closed while a call is about to use them: the call goes on, and nothing is lost."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from inside import inside

import forebay
from forebay import Forebay, Message

ROUNDS = 150
NAMES = tuple("abcdefgh")


class Handles:
    """Of all queues and topics, made before they are used."""

    def __init__(self, bay: Forebay) -> None:
        self.queues = {name: bay.queue(name) for name in NAMES}
        self.topics = {name: bay.topic(name) for name in NAMES}


def working(handles: Handles, seed: int, sent: dict[str, int], taken: dict[str, int]) -> Callable[[], None]:
    """A thread that uses queues, and counts what it sends and takes."""
    random = Random(seed)
    queues, topics = handles.queues, handles.topics

    def work() -> None:
        for _ in range(ROUNDS):
            name = random.choice(NAMES)
            queue, topic = queues[name], topics[name]
            choice = random.randrange(6)
            if choice == 0:
                queue.send_many([Message(b"x"), Message(b"y", priority=random.randrange(10))])
                sent[name] += 2
            elif choice == 1:
                queue.send(b"x", persistent=random.random() < 0.5)
                sent[name] += 1
            elif choice == 2:
                topic.send(b"heard by nobody", persistent=random.random() < 0.5)
            elif choice == 3:
                with topic.subscribe() as listener:
                    topic.send(b"x")
                    assert listener.take(1, timeout=5.0)
            elif choice == 4:
                taken[name] += queue.purge()
            with queue.subscribe() as consumer:
                deliveries = consumer.take(100)
                consumer.ack(deliveries)
                taken[name] += len(deliveries)
            assert queue.depth >= 0 and not queue.is_paused

    return work


@pytest.mark.parametrize("is_shared", [False, True], ids=["handles of their own", "the same handles"])
def test_threads_that_use_queues_and_topics_notice_nothing_of_one_that_closes_them(
    tmp_path: Path, is_shared: bool
) -> None:
    with forebay.open(tmp_path, memory_limit="8MiB", sync="never") as bay:
        counts = [({name: 0 for name in NAMES}, {name: 0 for name in NAMES}) for _ in range(3)]
        shared = Handles(bay)
        failures: list[BaseException] = []
        is_over = threading.Event()

        def safely(work: Callable[[], None]) -> Callable[[], None]:
            def run() -> None:
                try:
                    work()
                except BaseException as failure:
                    failures.append(failure)

            return run

        closed = 0

        def close() -> None:
            nonlocal closed
            while not is_over.is_set():
                closed += inside(bay).close_idle()

        workers = [
            threading.Thread(target=safely(working(shared if is_shared else Handles(bay), n, *counts[n])))
            for n in range(len(counts))
        ]
        closer = threading.Thread(target=safely(close))
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for thread in (closer, *workers):
                thread.start()
            for thread in workers:
                thread.join()
            is_over.set()
            closer.join()
        finally:
            sys.setswitchinterval(before)
        assert not failures, failures
        assert closed > ROUNDS // 8, "they met hardly any closing"
        for name in NAMES:
            left = bay.queue(name).depth
            sent, taken = (sum(each[at][name] for each in counts) for at in (0, 1))
            assert sent == taken + left, name
            found = bay.statistics().destinations[name]
            assert found.enqueued == sent and found.depth == left, name
        inside(bay).audit()
