"""on_ready: called once when a take that found nothing would find something, and never lost."""

from __future__ import annotations

import pytest
from delivering import drain, ids, send_equal
from simulated_bay import SimulatedBay

from forebay import Closed, Queue


class CountingCallback:
    """An on_ready callback that counts."""

    def __init__(self) -> None:
        self.rings = 0

    def __call__(self) -> None:
        self.rings += 1

    def heard(self) -> int:
        """How often since the last question."""
        rings, self.rings = self.rings, 0
        return rings


def test_on_ready_is_called_once_for_all_that_comes_until_a_take_finds_nothing(queue: Queue) -> None:
    bell = CountingCallback()
    with queue.subscribe(on_ready=bell) as consumer:
        assert bell.heard() == 0
        send_equal(queue, 5)
        queue.send(b"x")
        assert bell.heard() == 1
        consumer.take(3)
        queue.send(b"x")
        assert bell.heard() == 0, "the last take found something, so the next one is due anyway"
        drain(consumer)
        assert bell.heard() == 0
        queue.send(b"x")
        assert bell.heard() == 1


def test_on_ready_is_called_for_a_backlog_at_once(queue: Queue) -> None:
    queue.send(b"x")
    bell = CountingCallback()
    with queue.subscribe(on_ready=bell):
        assert bell.heard() == 1


def test_on_ready_is_called_for_what_comes_back(bay: SimulatedBay, queue: Queue) -> None:
    send_equal(queue, 3)
    holder, bell = queue.subscribe(), CountingCallback()
    held = holder.take(3)
    with queue.subscribe(on_ready=bell) as consumer:
        bell.heard()
        assert consumer.take() == []
        held[0].nack()
        assert bell.heard() == 1
        drain(consumer)
        held[1].nack(delay=5.0)
        assert bell.heard() == 0
        bay.clock.advance(6.0)
        bay.bay.step()
        assert bell.heard() == 1
        drain(consumer)
        holder.close()
        assert bell.heard() == 1


def test_on_ready_is_not_called_for_what_a_selector_does_not_want(queue: Queue) -> None:
    bell = CountingCallback()
    with queue.subscribe(selector="n = 2", on_ready=bell) as consumer:
        assert consumer.take() == []
        send_equal(queue, 2)
        assert bell.heard() == 0
        send_equal(queue, 3)
        assert bell.heard() == 1


def test_on_ready_is_called_when_credit_comes_and_not_before(queue: Queue) -> None:
    bell = CountingCallback()
    with queue.subscribe(prefetch=2, on_ready=bell) as consumer:
        send_equal(queue, 10)
        deliveries = consumer.take(5)
        assert consumer.take() == []
        bell.heard()
        queue.send(b"x")
        assert bell.heard() == 0, "a take would still return nothing"
        deliveries[0].ack()
        assert bell.heard() == 1
        assert len(consumer.take(5)) == 1 and consumer.take() == []
        consumer.prefetch = 3
        assert bell.heard() == 1
        assert len(consumer.take(5)) == 1 and consumer.take() == []
        consumer.nack(deliveries[1])
        assert bell.heard() == 1


def test_on_ready_is_not_called_for_credit_while_there_is_nothing_to_take(queue: Queue) -> None:
    bell = CountingCallback()
    with queue.subscribe(prefetch=1, on_ready=bell) as consumer:
        queue.send(b"x")
        (delivery,) = consumer.take()
        assert consumer.take() == []
        bell.heard()
        delivery.ack()
        assert bell.heard() == 0
        queue.send(b"x")
        assert bell.heard() == 1


def test_a_callback_may_use_everything(queue: Queue) -> None:
    seen: list[bytes] = []

    def use() -> None:
        for delivery in consumer.take(10):
            seen.append(delivery.body)
            delivery.ack()
            if len(seen) < 5:
                queue.send(b"again")
        while consumer.take():
            pass
        consumer.statistics()
        queue.subscribe().close()

    consumer = queue.subscribe(on_ready=use)
    consumer.take()
    queue.send(b"first")
    assert seen[0] == b"first"


def test_a_callback_that_raises_is_logged_once_and_hurts_nobody(
    bay: SimulatedBay, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    bell = CountingCallback()
    with queue.subscribe(on_ready=fail) as failing, queue.subscribe(on_ready=bell) as sound:
        failing.take()
        sound.take()
        message_id = queue.send(b"secret")
        assert len(caplog.records) == 1
        assert "secret" not in caplog.text
        assert bell.heard() == 1
        assert ids(failing.take()) == [message_id]
    bay.check()


def test_a_callback_that_is_interrupted_keeps_no_other_from_being_called(bay: SimulatedBay, queue: Queue) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    bells = [CountingCallback(), CountingCallback()]
    with (
        queue.subscribe(on_ready=interrupt) as interrupted,
        queue.subscribe(on_ready=bells[0]) as first,
        queue.subscribe(on_ready=bells[1]) as second,
    ):
        for consumer in (interrupted, first, second):
            consumer.take()
        with pytest.raises(KeyboardInterrupt):
            queue.send(b"1")
        bay.bay.step()
        assert [bell.heard() for bell in bells] == [1, 1]


def test_a_scan_that_the_loader_gave_up_for_want_of_memory_goes_on_after_a_take_that_left_it(
    bay: SimulatedBay, queue: Queue
) -> None:
    queue.send(b"x", headers={"n": 1}, priority=9)
    wanted = queue.send(b"x", headers={"n": 0}, priority=0)
    bay.reopen()
    bell = CountingCallback()
    with bay.queue().subscribe(selector="n = 0", on_ready=bell) as consumer:
        bay.loads.running_low.clear()  # which is what giving up is
        bell.heard()
        assert consumer.take() == []
        bay.bay.step()
        assert bell.heard() == 1
        assert ids(consumer.take()) == [wanted]


@pytest.mark.parametrize("frees", ["ack", "close", "nack", "resize", "second"])
def test_a_scan_that_the_loader_gave_up_for_want_of_memory_goes_on_when_memory_comes_free(
    bay: SimulatedBay, queue: Queue, frees: str
) -> None:
    queue.send(b"x", headers={"n": 1}, priority=9)
    wanted = queue.send(b"x", headers={"n": 0}, priority=0)
    elsewhere = bay.queue("elsewhere")
    elsewhere.send(bytes(1024))
    bay.reopen()
    host = bay.budget.holder("host")
    taker = bay.queue("elsewhere").subscribe()
    (held,) = taker.take()
    bell = CountingCallback()
    with bay.queue().subscribe(selector="n = 0", on_ready=bell) as consumer:
        bay.loads.running_low.clear()
        bell.heard()
        assert consumer.take() == []
        bay.reclaim.make_room(bay.budget.limit_bytes, None, messages_min=0)
        assert host.reserve(bay.budget.free_bytes)
        bay.bay.step()
        assert not bell.heard() and not bay.loads.running_low
        if frees == "ack":
            held.ack()
        elif frees == "close":
            taker.close()
        elif frees == "nack":
            held.nack(delay=100)
        elif frees == "resize":
            bay.bay.resize("8MiB")
        else:
            host.release(host.held_bytes)
            bay.clock.advance(1.0)
        bay.bay.step()
        assert bell.heard() == 1
        assert ids(consumer.take()) == [wanted]
    host.release(host.held_bytes)
    bay.check()


@pytest.mark.parametrize("how", ["the queue is deleted", "the store is closed"])
def test_on_ready_is_called_once_when_its_queue_or_store_ends(bay: SimulatedBay, queue: Queue, how: str) -> None:
    waiting, holding, told, closed = CountingCallback(), CountingCallback(), CountingCallback(), CountingCallback()
    consumers = [queue.subscribe(on_ready=bell, prefetch=1) for bell in (waiting, holding, told, closed)]
    consumers[3].close()
    queue.send(b"x")
    [held] = consumers[1].take()
    assert consumers[0].take() == [] and consumers[1].take() == []
    queue.send(b"y")
    for bell in (waiting, holding, told, closed):
        bell.heard()
    end = queue.delete if how == "the queue is deleted" else bay.bay.close
    consumers[0].take()
    consumers[0].take()
    end()
    assert waiting.heard() == 1, "its last take found nothing"
    assert holding.heard() == 1, "it waits for credit"
    assert closed.heard() == 0
    assert told.heard() <= 1
    for consumer in consumers[:3]:
        with pytest.raises(Closed):
            consumer.take()
    end()
    assert waiting.heard() == holding.heard() == 0


def test_on_ready_of_a_subscription_is_called_when_the_store_is_closed(bay: SimulatedBay) -> None:
    bells = [CountingCallback(), CountingCallback()]
    topic = bay.bay.topic("prices")
    consumers = [topic.subscribe(on_ready=bells[0]), topic.subscribe(durable="audit", on_ready=bells[1])]
    assert [consumer.take() for consumer in consumers] == [[], []]
    bay.bay.close()
    assert [bell.heard() for bell in bells] == [1, 1]


def test_a_callback_that_takes_after_the_end_finds_closed_and_is_no_error(
    bay: SimulatedBay, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    found: list[object] = []

    def take() -> None:
        try:
            consumer.take()
        except Closed as error:
            found.append(error)
            raise

    consumer = queue.subscribe(on_ready=take)
    bay.bay.close()
    assert len(found) == 1 and not [record for record in caplog.records if record.levelname == "ERROR"]
