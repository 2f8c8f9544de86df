"""`Consumer.drain`: it takes nothing more, others get what it was to get, and what it holds is settled in peace."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from random import Random

import pytest
from delivering import bodies, numbered_messages
from loops import LoopBay, run_jumping, ticks
from simulated_bay import SimulatedBay

import forebay.aio
from forebay import ArgumentError, Closed, Consumer, Delivery, DestinationPolicy, Message

PATIENCE_SECONDS = 30


def numbered(count: int, **policy: object) -> SimulatedBay:
    bay = SimulatedBay(policies={">": DestinationPolicy(max_attempts=3, **policy)})  # type: ignore[arg-type]
    bay.queue().send_many(numbered_messages(count))
    return bay


# ------------------------------------------------------------------ what it takes, and what others take


def test_a_draining_consumer_takes_nothing_and_settles_in_every_way_what_it_holds() -> None:
    bay = numbered(6)
    with bay.queue().subscribe() as consumer:
        first, second, third, fourth = consumer.take(4)
        assert not consumer.drain(timeout=0)
        with pytest.raises(Closed, match="the consumer is draining"):
            consumer.take()
        with pytest.raises(Closed, match="draining"):
            consumer.take(5, timeout=None)
        with pytest.raises(Closed, match="draining"):
            consumer.fileno()
        assert list(consumer) == [] == list(consumer.batches(3))
        assert "draining" in repr(consumer) and consumer.in_flight == 4
        first.ack()
        second.nack()
        third.release()
        fourth.reject()
        assert consumer.drain(timeout=0) and consumer.in_flight == 0
    with bay.queue().subscribe() as other:
        assert [(delivery.body, delivery.attempts) for delivery in other.take(9)] == [
            (b"1", 2),
            (b"2", 1),
            (b"4", 1),
            (b"5", 1),
        ]
    bay.check()


def test_a_drained_consumer_closes_without_a_loss_of_attempts() -> None:
    bay = numbered(3, count_on_close="all")
    for _ in range(5):
        with bay.queue().subscribe(prefetch=2) as consumer:
            consumer.release(consumer.take(2))
            assert consumer.drain()
    with bay.queue().subscribe() as other:
        assert [delivery.attempts for delivery in other.take(9)] == [1, 1, 1]
    bay.check()


def test_prefetch_and_resume_do_not_undo_it() -> None:
    bay = numbered(3)
    queue = bay.queue()
    with queue.subscribe(prefetch=1) as consumer:
        consumer.take()
        consumer.drain(timeout=0)
        consumer.prefetch = 100
        assert consumer.prefetch == 0
        queue.pause()
        queue.resume()
        with queue.subscribe(exclusive=True):
            pass
        queue.send(b"x", group="tea")  # it has a dealer from now on
        with pytest.raises(Closed):
            consumer.take()
    bay.check()


def test_the_callback_of_another_consumer_is_called_for_what_a_draining_one_leaves() -> None:
    bay = numbered(0)
    calls: list[str] = []
    leaver = bay.queue().subscribe(on_ready=lambda: calls.append("leaver"))
    stayer = bay.queue().subscribe(on_ready=lambda: calls.append("stayer"))
    assert leaver.drain() and calls == ["leaver", "stayer"]  # the other one for what the first may have been told of
    assert stayer.take() == []
    bay.queue().send(b"x")
    assert calls == ["leaver", "stayer", "stayer"]
    assert bodies(stayer.take(5)) == [b"x"]
    leaver.close()
    bay.check()


def test_groups_go_to_others_each_as_soon_as_the_draining_consumer_holds_none_of_it() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    leaver = queue.subscribe()
    for n in range(3):
        queue.send_many(Message(b"%s %d" % (group.encode(), n), group=group) for group in ("tea", "rice", "oil"))
    tea, rice = leaver.take(2)
    assert bodies((tea, rice)) == [b"tea 0", b"rice 0"]
    stayer = queue.subscribe()
    assert not leaver.drain(timeout=0)
    assert bodies(stayer.take(9)) == [b"oil 0", b"oil 1", b"oil 2"]
    queue.send(b"tea 3", group="tea")
    assert stayer.take(9) == []
    tea.ack()
    assert bodies(stayer.take(9)) == [b"tea 1", b"tea 2", b"tea 3"]
    rice.nack()
    assert bodies(stayer.take(9)) == [b"rice 0", b"rice 1", b"rice 2"]
    assert leaver.drain(timeout=0)
    leaver.close()
    bay.check()


def test_priority_of_a_draining_consumer_holds_nobody_back() -> None:
    bay = SimulatedBay()
    high = bay.queue().subscribe(priority=5)
    low = bay.queue().subscribe()
    bay.queue().send_many(numbered_messages(3))
    assert low.take(3) == []
    assert high.drain()
    assert bodies(low.take(3)) == [b"0", b"1", b"2"]
    bay.check()


def test_an_exclusive_consumer_stays_it_until_it_is_closed() -> None:
    bay = numbered(3)
    first = bay.queue().subscribe(exclusive=True)
    second = bay.queue().subscribe(exclusive=True)
    [held] = first.take()
    assert not first.drain(timeout=0)
    assert second.take(5) == []
    held.ack()
    assert first.drain(timeout=0) and second.take(5) == []
    first.close()
    assert bodies(second.take(5)) == [b"1", b"2"]
    bay.check()


def test_a_draining_consumer_that_holds_nothing_is_never_called_slow() -> None:
    bay = numbered(3, slow_consumer_seconds=1.0)
    told: list[object] = []
    consumer = bay.queue().subscribe(on_slow=told.append)
    assert consumer.drain()
    for _ in range(5):
        bay.clock.advance(1.0)
        bay.bay.step()
    assert not consumer.is_slow and not told


# ------------------------------------------------------------------ how it waits


def in_thread(function: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(function()), daemon=True)
    thread.start()
    return thread, found


def test_it_ends_the_takes_that_wait_in_other_threads_and_returns_with_the_last_ack() -> None:
    bay = numbered(1)
    consumer = bay.queue().subscribe()
    [held] = consumer.take()
    iterating, iterated = in_thread(lambda: list(consumer))
    draining, drained = in_thread(consumer.drain)
    iterating.join(PATIENCE_SECONDS)
    assert iterated == [[]] and draining.is_alive()
    held.ack()
    draining.join(PATIENCE_SECONDS)
    assert drained == [True]


def test_it_waits_for_the_outcome_of_a_transaction_that_holds_its_deliveries() -> None:
    bay = numbered(1)
    consumer = bay.queue().subscribe()
    with bay.bay.transaction() as transaction:
        consumer.ack(consumer.take(), transaction=transaction)
        assert not consumer.drain(timeout=0)
    assert consumer.drain(timeout=0) and bay.queue().depth == 0


def test_it_ends_when_the_consumer_is_closed_and_raises_when_the_store_is() -> None:
    bay = numbered(1)
    consumer = bay.queue().subscribe()
    consumer.take()
    assert not consumer.drain(timeout=0)
    consumer.close()
    assert consumer.drain()
    with pytest.raises(ArgumentError):
        consumer.drain(timeout="soon")  # type: ignore[arg-type]
    bay.bay.close()
    with pytest.raises(Closed, match="the store"):
        consumer.drain()


def test_in_a_handler_inside_a_call_of_the_store_it_begins_with_the_end_of_that_call() -> None:
    bay = numbered(2)
    consumer = bay.queue().subscribe()
    with bay.lock:
        assert not consumer.drain()
    bay.queue().send(b"x")
    with pytest.raises(Closed, match="draining"):
        consumer.take()


def test_random_consumers_that_drain_lose_nothing_and_keep_the_order_of_groups() -> None:
    for seed in range(30):
        random = Random(seed)
        bay = SimulatedBay(seed)
        queue = bay.queue()
        settled: dict[str | None, list[int]] = {}
        sent = 0

        def settle(consumer: Consumer, held: list[Delivery], count: int, settled: dict[str | None, list[int]]) -> None:
            consumer.ack(held[:count])
            for delivery in held[:count]:
                settled.setdefault(delivery.group, []).append(int(delivery.body))
            del held[:count]

        consumers: dict[Consumer, list[Delivery]] = {queue.subscribe(prefetch=n): [] for n in (0, 3, 3)}
        for _ in range(200):
            consumer = random.choice(list(consumers))
            held = consumers[consumer]
            match random.randrange(8):
                case 0 | 1 | 2:
                    queue.send(b"%d" % sent, group=random.choice("abcd"))
                    sent += 1
                case 3:
                    settle(consumer, held, random.randrange(len(held) + 1), settled)
                case 4:
                    consumer.release(held)
                    held.clear()
                case 5 if random.random() < 0.3:
                    consumer.drain(timeout=0)
                case 6 if consumer.is_draining:
                    consumer.close()
                    del consumers[consumer]
                    consumers[queue.subscribe(prefetch=3)] = []
                case 7 if not consumer.is_draining:
                    held += consumer.take(random.randrange(1, 4))
            bay.check()
        for consumer, held in consumers.items():
            assert consumer.drain(timeout=0) == (not held), f"seed {seed}"
        last = queue.subscribe()
        for consumer, held in consumers.items():
            settle(consumer, held, len(held), settled)
            assert consumer.drain(timeout=0), f"seed {seed}"
        while taken := last.take(5):
            settle(last, taken, len(taken), settled)
        assert sum(map(len, settled.values())) == sent, f"seed {seed}"
        assert all(numbers == sorted(numbers) for numbers in settled.values()), f"seed {seed}"


# ------------------------------------------------------------------ asyncio


def test_in_a_loop_it_ends_the_takes_that_wait_and_other_consumers_go_on() -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        leaver, stayer = await queue.subscribe(), await queue.subscribe()
        takes = [asyncio.create_task(consumer.take(timeout=None)) for consumer in (leaver, stayer, leaver, stayer)]
        await ticks()
        assert await leaver.drain()
        await ticks()
        assert [take.done() for take in takes] == [True, False, True, False]
        for ended in (takes[0], takes[2], asyncio.create_task(leaver.take(timeout=None))):
            with pytest.raises(Closed, match="draining"):
                await ended
        assert [delivery async for delivery in leaver] == []
        await queue.send_many(numbered_messages(2))
        assert bodies([*await takes[1], *await takes[3]]) == [b"0", b"1"]
        await leaver.close()
        bay.check()

    asyncio.run(main())


def test_in_a_loop_it_waits_for_the_last_ack_or_for_its_time() -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        await queue.send(b"x")
        async with queue.subscribe() as consumer:
            [delivery] = await consumer.take()
            assert not await consumer.drain(timeout=1.0)
            draining = asyncio.create_task(consumer.drain())
            await asyncio.sleep(5.0)
            assert not draining.done()
            await delivery.ack()
            assert await draining
        assert isinstance(consumer, forebay.aio.Consumer)
        bay.check()

    run_jumping(main())


class Waited:
    """A condition that nobody notifies. Each wait lets the clock go on and is counted."""

    def __init__(self, bay: SimulatedBay) -> None:
        self._bay = bay
        self.seconds = 0.0

    def wait(self, seconds: float) -> None:
        self.seconds += seconds
        self._bay.clock.advance(seconds)


@pytest.mark.parametrize("module", ["queue", "consumer.ending"])
def test_a_drain_and_a_join_wait_no_longer_than_their_timeout(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    bay = numbered(1)
    waited = Waited(bay)
    monkeypatch.setattr(f"forebay.dispatch.{module}.condition_of", lambda lock: waited)
    with bay.queue().subscribe() as consumer:
        consumer.take()
        wait = bay.queue().join if module == "queue" else consumer.drain
        assert not wait(timeout=0.03)
        assert waited.seconds == pytest.approx(0.03), "and not two polls of 25 ms"
