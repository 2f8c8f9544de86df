"""Messages above an eighth of the memory limit: charged at each instant, never in the way, always delivered."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from delivering import take_up_to
from simulated_bay import SimulatedBay

import forebay
from forebay import Consumer, Delivery, Message
from forebay.cache.accounting.budget import Holder
from forebay.cache.accounting.charge import OVERHEAD_BYTES

MIB = 1024 * 1024
LIMIT = "8MiB"
LARGE_BYTES = 3 * MIB
WAIT_SECONDS = 60.0


def body(number: int, size: int = LARGE_BYTES) -> bytes:
    return number.to_bytes(4, "little") * (size // 4)


def number_of(delivery: Delivery) -> int:
    """Requires: its body is one of these."""
    content = delivery.body
    number = int.from_bytes(content[:4], "little")
    assert content == body(number, len(content))
    return number


@pytest.fixture(autouse=True)
def _limit_is_asserted_inside_each_reservation(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    above: list[int] = []

    def checked(method: Callable[[Holder, int], bool]) -> Callable[[Holder, int], bool]:
        def check(self: Holder, charge_bytes: int) -> bool:
            answer = method(self, charge_bytes)
            if self._budget.held_bytes > self._budget.limit_bytes:
                above.append(self._budget.held_bytes)
            return answer

        return check

    for name in ("reserve", "reserve_for_progress"):
        monkeypatch.setattr(Holder, name, checked(getattr(Holder, name)))
    yield
    assert not above


def dispatched(bay: SimulatedBay) -> int:
    return bay.bay.statistics().memory.holders["dispatch_area"]


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize(("size", "is_kept"), [(3 * MIB // 2, True), (LARGE_BYTES, False)])
def test_what_arrives_while_its_consumer_waits_stays_in_ram_up_to_the_high_watermark(
    size: int, is_kept: bool, persistent: bool
) -> None:
    bay = SimulatedBay(memory_limit=LIMIT)
    calls: list[None] = []
    consumer = bay.queue().subscribe(on_ready=lambda: calls.append(None))
    assert consumer.take() == []
    bay.queue().send(body(7, size), persistent=persistent)
    bay.check()
    assert len(calls) == 1
    [delivery] = consumer.take()
    bay.check()
    if persistent:
        reads = bay.reads
        assert dispatched(bay) == OVERHEAD_BYTES + is_kept * size, "what went to the journal is read when looked at"
        assert number_of(delivery) == 7
        assert (bay.reads == reads) == is_kept
    assert number_of(delivery) == 7
    delivery.ack()
    assert dispatched(bay) == 0
    bay.check()


@pytest.mark.parametrize("persistent", [True, False])
def test_several_consumers_hold_far_more_than_the_limit_of_them(persistent: bool) -> None:
    bay = SimulatedBay(memory_limit=LIMIT)
    consumers = [bay.queue().subscribe(prefetch=10) for _ in range(4)]
    held: list[tuple[Consumer, Delivery]] = []
    for number in range(24):
        bay.queue().send(body(number), persistent=persistent)
        bay.check()
        consumer = consumers[number % len(consumers)]
        [delivery] = consumer.take()
        held.append((consumer, delivery))
        bay.bay.step()
        bay.check()
    for number, (consumer, delivery) in enumerate(held):
        assert number_of(delivery) == number
        if number % 3:
            consumer.ack(delivery)
        else:
            consumer.nack(delivery)
        bay.check()
    again = [delivery for consumer in consumers for delivery in take_up_to(consumer, 10)]
    assert sorted(map(number_of, again)) == list(range(0, 24, 3))
    for delivery in again:
        delivery.ack()
    assert bay.queue().depth == 0
    bay.check()


@pytest.mark.parametrize("persistent", [True, False])
def test_small_messages_pass_beside_large_ones_in_flight(persistent: bool) -> None:
    bay = SimulatedBay(memory_limit=LIMIT)
    keeper, reader = bay.queue("large").subscribe(), bay.queue("small").subscribe()
    for number in range(8):
        bay.queue("large").send(body(number), persistent=persistent)
    kept = take_up_to(keeper, 8)
    assert len(kept) == 8
    for _ in range(20):
        bay.queue("small").send_many(Message(bytes(1024), persistent=persistent) for _ in range(100))
        deliveries = take_up_to(reader, 100)
        assert len(deliveries) == 100, "small messages wait for large ones"
        reader.ack(deliveries)
    bay.check()
    assert list(map(number_of, kept)) == list(range(8))


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [True, False])
def test_waiting_consumers_of_several_threads_get_all_of_them(tmp_path: Path, persistent: bool) -> None:
    """Each holds three before it acknowledges: 36 MiB of bodies in flight."""
    messages, consumers = 48, 4
    got: list[int] = []
    with forebay.open(tmp_path, memory_limit=LIMIT, sync="never") as bay:
        queue = bay.queue("orders")

        def consume() -> None:
            with queue.subscribe(prefetch=3) as consumer:
                for _ in range(messages // consumers // 3):
                    held: list[Delivery] = []
                    while len(held) < 3 and (taken := consumer.take(timeout=WAIT_SECONDS)):
                        held += taken
                    got.extend(map(number_of, held))
                    consumer.ack(held)

        threads = [threading.Thread(target=consume) for _ in range(consumers)]
        for thread in threads:
            thread.start()
        for number in range(messages):
            queue.send(body(number), persistent=persistent)
        for thread in threads:
            thread.join()
        assert sorted(got) == list(range(messages))
        memory = bay.statistics().memory
        assert memory.held_bytes_max <= memory.limit_bytes


@pytest.mark.parametrize("way", ["send", "send_many", "transaction"])
def test_one_is_written_without_a_copy(tmp_path: Path, way: str) -> None:
    content = body(1, 6 * MIB)
    with forebay.open(tmp_path, memory_limit=LIMIT, sync="never", background=False) as bay:
        queue = bay.queue("orders")
        queue.send(b"opens what is opened once")
        tracemalloc.start()
        try:
            if way == "send":
                queue.send(content)
            elif way == "send_many":
                queue.send_many([Message(content)])
            else:
                with bay.transaction() as transaction:
                    queue.send(content, transaction=transaction)
            _, most_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most_bytes < MIB
        with queue.subscribe() as consumer:
            _, delivery = take_up_to(consumer, 2)
            assert number_of(delivery) == 1
