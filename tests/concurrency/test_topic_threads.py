"""Topics with the library's own threads, and many of the caller's: each subscription gets each message once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from inside import inside

import forebay
from forebay import Consumer, Forebay, Message
from forebay.dispatch.config.settings import SyncMode

SENDERS, BATCHES, BATCH = 3, 20, 25
MESSAGES = SENDERS * BATCHES * BATCH
PATIENCE_SECONDS = 60.0


def send(bay: Forebay, sender: int) -> None:
    topic = bay.topic("prices")
    for batch in range(BATCHES):
        numbers = range((sender * BATCHES + batch) * BATCH, (sender * BATCHES + batch + 1) * BATCH)
        if batch % 2:
            topic.send_many(Message(b"%d" % n + bytes(900), headers={"n": n}) for n in numbers)
        else:
            for n in numbers:
                topic.send(b"%d" % n + bytes(900), headers={"n": n})


def receive(consumer: Consumer, wanted: int, found: list[int]) -> None:
    while len(found) < wanted:
        deliveries = consumer.take(50, timeout=PATIENCE_SECONDS)
        if not deliveries:
            return
        for delivery in deliveries:
            number = delivery.headers["n"]
            assert isinstance(number, int)
            found.append(number)
        consumer.ack(deliveries)


@pytest.mark.parametrize("sync", ["always", "never"])
def test_each_subscription_gets_each_message_once(tmp_path: Path, sync: SyncMode) -> None:
    selectors = {"all": None, "some": f"n < {MESSAGES // 3}", "unread": f"n >= {MESSAGES - 10}", "": None}
    with forebay.open(tmp_path, memory_limit="4MiB", sync=sync, max_file_length="64KiB") as bay:
        topic = bay.topic("prices")
        consumers = {name: topic.subscribe(durable=name or None, selector=text) for name, text in selectors.items()}
        consumers.pop("unread").close()
        found: dict[str, list[int]] = {name: [] for name in consumers}
        threads = [threading.Thread(target=send, args=(bay, sender)) for sender in range(SENDERS)]
        threads += [
            threading.Thread(
                target=receive, args=(consumer, MESSAGES // 3 if name == "some" else MESSAGES, found[name])
            )
            for name, consumer in consumers.items()
        ]
        for thread in threads:
            thread.start()
        bay.cleanup()
        for thread in threads:
            thread.join()
        for name, numbers in found.items():
            assert sorted(numbers) == list(range(MESSAGES // 3 if name == "some" else MESSAGES))
            for sender in range(SENDERS):
                own = [n for n in numbers if n // (BATCHES * BATCH) == sender]
                assert own == sorted(own)
        inside(bay).audit()
    with forebay.open(tmp_path, memory_limit="4MiB", background=False) as bay:
        bay.step()
        subscriptions = bay.topic("prices").statistics().subscriptions
        assert {name: found.depth for name, found in subscriptions.items()} == {"all": 0, "some": 0, "unread": 10}
        bay.cleanup()
        assert bay.statistics().store.pending_messages == 10
        with bay.topic("prices").subscribe(durable="unread", selector=selectors["unread"]) as consumer:
            assert sorted(int(delivery.body.rstrip(b"\0")) for delivery in consumer.take(20)) == list(
                range(MESSAGES - 10, MESSAGES)
            )
