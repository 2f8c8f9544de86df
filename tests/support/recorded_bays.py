"""A SimulatedBay that records a trace, and kinds of traffic to record."""

from __future__ import annotations

from random import Random
from typing import Any

from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk

from forebay import Message
from forebay.dispatch.consumer.consumer import Consumer
from forebay.dispatch.queue import Queue
from forebay.store.disk.disk import File


class RecordedBay(SimulatedBay):
    """A SimulatedBay that records its traffic in the file `trace`, on a disk of its own."""

    def __init__(self, seed: int = 0, **fields: Any) -> None:
        self.trace_disk = SimulatedDisk()
        super().__init__(seed, **fields)

    @property
    def trace(self) -> File:
        return self.trace_disk.open_for_reading("trace")

    def open_again(self, trace: File | None = None) -> None:
        super().open_again(self.trace_disk.open("trace", create=True))

    def pass_second(self) -> None:
        self.clock.advance(1.0)
        self.bay.step()


def send(queue: Queue, count: int, size: int, **headers: Any) -> None:
    queue.send_many(Message(bytes(size), headers=headers or None) for _ in range(count))


def take(consumer: Consumer, count: int, batch: int = 100) -> int:
    """Take and acknowledge as many messages as there are, at most count; return how many."""
    done = 0
    while done < count:
        deliveries = consumer.take(min(batch, count - done))
        if not deliveries:
            break
        consumer.ack(deliveries)
        done += len(deliveries)
    return done


def steady(bay: RecordedBay, random: Random, seconds: int = 30) -> None:
    """Play one producer and a consumer that keeps up, with a backlog that goes up and down."""
    queue = bay.queue()
    with queue.subscribe() as consumer:
        for _ in range(seconds):
            for _ in range(20):
                send(queue, random.randrange(20, 120), random.randrange(200, 2000))
                bay.bay.step()
                take(consumer, random.randrange(20, 120), random.choice((1, 10, 100)))
            bay.pass_second()
        take(consumer, 1 << 30)


def burst(bay: RecordedBay, random: Random, messages: int = 6000) -> None:
    """Play three bursts, each larger, with which no consumer keeps up, and drain each."""
    queue = bay.queue()
    with queue.subscribe() as consumer:
        for factor in (1, 2, 4):
            for _ in range(10):
                send(queue, messages * factor // 50, 1000)
                take(consumer, messages * factor // 400)
                bay.pass_second()
            while take(consumer, messages * factor // 20):
                bay.pass_second()


def competing(bay: RecordedBay, random: Random, seconds: int = 30) -> None:
    """Play two selectors over one queue: one consumer keeps up, the other falls behind and catches up."""
    queue = bay.queue()
    fast = queue.subscribe(selector="kind = 'fast'")
    slow = queue.subscribe(selector="kind = 'slow'")
    for second in range(seconds):
        for _ in range(10):
            for _ in range(random.randrange(1, 6)):
                send(queue, random.randrange(5, 60), 1000, kind=random.choice(("fast", "slow")))
                bay.bay.step()
            take(fast, 1 << 30)
            take(slow, 15 if second % 10 < 7 else 300)
        bay.pass_second()
    for consumer in (fast, slow):
        take(consumer, 1 << 30)
        consumer.close()


def pass_by(bay: RecordedBay, random: Random, seconds: int = 40) -> None:
    """Play three queues with different sizes of messages. Each in turn stands still for a while and is drained."""
    sizes = (300, 1500, 6000)
    queues = [bay.queue(f"queue-{size}") for size in sizes]
    consumers = [queue.subscribe() for queue in queues]
    for second in range(seconds):
        for _ in range(5):
            for at, queue in enumerate(queues):
                send(queue, random.randrange(600_000) // 5 // sizes[at], sizes[at])
                bay.bay.step()
                if second // 5 % len(queues) != at:
                    take(consumers[at], 3_000_000 // sizes[at] // 5)
        bay.pass_second()
    for consumer in consumers:
        take(consumer, 1 << 30)
        consumer.close()
