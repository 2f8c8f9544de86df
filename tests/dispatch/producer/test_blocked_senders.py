"""Senders that wait for room: for how long, in which order, who is blamed, and what a cancelled one leaves."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import waiting_senders
from loops import LoopBay, run_jumping, ticks
from simulated_bay import SimulatedBay
from waiting_senders import Sender

from forebay import Closed, DestinationPolicy, Message, Queue, SettingsError, StoreFull, Topic
from forebay.dispatch.admission import space_line as space_line
from forebay.dispatch.admission.space_line import SpaceLine

KIB = 1024


def waiting_sender(bay: SimulatedBay, line: SpaceLine, call: Callable[[], object]) -> Sender:
    """Started, and in its place in the line."""
    return waiting_senders.waiting_sender(bay.clock, lambda: len(list(line)), call)


def limited_sender(bay: SimulatedBay, target: Queue | Topic, call: Callable[[], object]) -> Sender:
    """Started, and in its place among those who wait for room in a destination."""
    limits = target.destination.limits
    assert limits is not None
    return waiting_senders.waiting_sender(bay.clock, lambda: len(limits.blocked()), call)


def full_store(**policy: Any) -> SimulatedBay:
    """A store_limit of 1 MiB that is used up, by a queue that nobody consumes; no cleanup makes room."""
    bay = SimulatedBay(policies={"orders": DestinationPolicy(**policy)}, store_limit="1MiB", max_file_length="64KiB")
    bay.queue("orders")
    for body in (bytes(10 * KIB), b"", b""):
        with pytest.raises(StoreFull):
            while True:
                bay.queue("filler").send(body)
        bay.bay.cleanup()
    assert not bay.bay.cleanup().deleted
    return bay


def make_room(bay: SimulatedBay) -> None:
    bay.queue("filler").purge()
    assert bay.bay.cleanup().deleted


def full_tmp(**policy: Any) -> SimulatedBay:
    """tmp-storage and RAM are full of non-persistent messages."""
    bay = SimulatedBay(policies={"orders": DestinationPolicy(**policy)}, temp_limit="1MiB")
    with pytest.raises(StoreFull):
        while True:
            bay.queue("filler").send(bytes(10 * KIB), persistent=False)
    with pytest.raises(StoreFull):
        while True:
            bay.queue("filler").send(b"", persistent=False)
    return bay


@pytest.fixture
def _without_looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody looks again by himself: who waits is woken."""
    monkeypatch.setattr(space_line, "POLL_SECONDS", 1000.0)
    yield


# ------------------------------------------------------------------ store_limit


def test_a_full_store_refuses_at_once_where_nothing_else_is_said() -> None:
    bay = full_store()
    for fields in ({}, {"timeout": 0.0}):
        with pytest.raises(StoreFull, match="store_limit"):
            bay.queue().send(b"x", **fields)  # type: ignore[arg-type]
    assert bay.bay.statistics().destinations["orders"].blocked_sends == 0


@pytest.mark.usefixtures("_without_looks")
def test_a_sender_waits_for_the_store_as_its_policy_says_and_goes_on_when_a_data_log_is_gone() -> None:
    bay = full_store(when_store_full="block")
    sender = waiting_sender(bay, bay.space.journal, lambda: bay.queue().send(b"waited"))
    make_room(bay)
    sender.end()
    assert sender.error is None
    assert [message.body for message in bay.queue().browse()] == [b"waited"]
    statistics = bay.bay.statistics().destinations["orders"]
    assert statistics.blocked_sends == 1
    assert bay.space.journal.is_empty


@pytest.mark.usefixtures("_without_looks")
def test_senders_to_different_queues_are_served_in_the_order_in_which_they_came() -> None:
    bay = full_store(when_store_full="block")
    line = bay.space.journal
    senders = []
    for n in range(6):
        queue = bay.queue("orders") if n % 2 else bay.queue("filler")
        senders.append(waiting_sender(bay, line, lambda queue=queue, n=n: queue.send(b"%d" % n, timeout=1000)))  # type: ignore[misc]
    bay.queue("filler").purge()
    bay.bay.cleanup()
    for sender in senders:
        sender.end()
        assert sender.error is None
    found = sorted(
        (offset, message.body)
        for name in ("orders", "filler")
        for message, offset in zip(bay.queue(name).browse(), offsets(bay, name), strict=True)
    )
    assert [body for _, body in found] == [b"%d" % n for n in range(6)]


def offsets(bay: SimulatedBay, name: str) -> list[tuple[int, int]]:
    """Where the messages of a queue lie in the journal."""
    [lane] = filter(None, bay.queue_state(name).lanes)
    return [
        (extent.data_log, extent.offset)
        for sequence in range(lane.pending_lane.next_sequence)
        if lane.pending_lane.is_pending(sequence)
        for extent in lane.destination_lane.extents(sequence, sequence)
    ]


def test_a_batch_waits_and_all_of_it_is_in() -> None:
    bay = full_store(when_store_full="block")
    bay.queue("filler").purge()
    bay.bay.cleanup()
    messages = [Message(bytes(10 * KIB), message_id=f"{n}") for n in range(250)]
    sender = waiting_sender(bay, bay.space.journal, lambda: bay.queue().send_many(messages))
    got: list[str] = []
    consumer = bay.queue().subscribe()
    while sender.is_alive() or bay.queue().depth:
        taken = consumer.take(20)
        got += [delivery.id for delivery in taken]
        if taken:
            consumer.ack(taken)
        bay.bay.cleanup()
    sender.end()
    assert sender.error is None
    assert sender.result == got == [f"{n}" for n in range(250)]


def test_time_runs_out_for_a_policy_and_for_one_call() -> None:
    bay = full_store(when_store_full="block", block_timeout_seconds=5.0)
    for call in (lambda: bay.queue().send(b"x"), lambda: bay.queue("filler").send(b"x", timeout=5)):
        sender = waiting_sender(bay, bay.space.journal, call)
        bay.clock.advance(6.0)
        sender.end()
        assert type(sender.error) is StoreFull
    assert bay.bay.statistics().destinations["orders"].blocked_seconds == 6.0
    assert bay.queue().depth == 0


def test_a_call_may_refuse_to_wait_where_the_policy_would() -> None:
    bay = full_store(when_store_full="block")
    with pytest.raises(StoreFull):
        bay.queue().send(b"x", timeout=0)
    with pytest.raises(StoreFull) as full:
        bay.queue().send_many([Message(b"x")], timeout=0)
    assert full.value.stored == 0


@pytest.mark.parametrize("timeout", [-1, "5", True, float("nan"), 1e9])
def test_a_timeout_that_is_none_is_refused(timeout: Any) -> None:
    bay = full_store()
    with pytest.raises(SettingsError, match="timeout"):
        bay.queue().send(b"x", timeout=timeout)
    with pytest.raises(SettingsError, match="timeout"):
        bay.queue().send_many([], timeout=timeout)


def test_a_wrong_choice_for_a_full_store_is_refused() -> None:
    with pytest.raises(SettingsError, match="when_store_full"):
        DestinationPolicy(when_store_full="wait")  # type: ignore[arg-type]


def test_who_waits_ends_with_the_store() -> None:
    bay = full_store(when_store_full="block")
    sender = waiting_sender(bay, bay.space.journal, lambda: bay.queue().send(b"x"))
    bay.bay.close()
    sender.end()
    assert type(sender.error) is Closed


def test_messages_of_a_transaction_wait_too() -> None:
    bay = full_store(when_store_full="block")
    transaction = bay.bay.transaction()
    sender = waiting_sender(
        bay,
        bay.space.journal,
        lambda: [bay.queue().send(bytes(300 * KIB), transaction=transaction) for _ in range(3)],
    )
    make_room(bay)
    sender.end()
    assert sender.error is None
    transaction.commit()
    assert [message.message_id for message in bay.queue().browse()] == sender.result


# ------------------------------------------------------------------ temp_limit


@pytest.mark.usefixtures("_without_looks")
def test_a_sender_of_non_persistent_messages_waits_for_tmp_storage() -> None:
    bay = full_tmp(when_store_full="block")
    with pytest.raises(StoreFull):
        bay.queue().send(bytes(KIB), persistent=False, timeout=0)
    sender = waiting_sender(bay, bay.space.tmp_storage, lambda: bay.queue().send(bytes(KIB), persistent=False))
    bay.queue().send(b"the journal has room")
    bay.queue("filler").purge()
    with bay.lock:
        bay.overflow.compact()
    sender.end()
    assert sender.error is None
    assert bay.queue().depth == 2
    bay.check()


# ------------------------------------------------------------------ limits of a destination


def test_a_timeout_decides_before_the_policy_at_the_limits_of_a_queue() -> None:
    bay = SimulatedBay(
        policies={
            "failing": DestinationPolicy(max_messages=1, when_full="fail"),
            "blocking": DestinationPolicy(max_messages=1),
        }
    )
    for name in ("failing", "blocking"):
        queue = bay.queue(name)
        queue.send(b"1", timeout=0)
        with pytest.raises(StoreFull, match="max_messages"):
            queue.send(b"2", timeout=0)
        with pytest.raises(StoreFull, match="max_messages"):
            queue.send_many([Message(b"2")], timeout=0)
        sender = limited_sender(bay, queue, lambda queue=queue: queue.send(b"2", timeout=1000))  # type: ignore[misc]
        with queue.subscribe(prefetch=1) as consumer:
            consumer.ack(consumer.take())
        sender.end()
        assert sender.error is None and queue.depth == 1


def test_a_topic_has_the_limits_of_its_policy() -> None:
    bay = SimulatedBay(policies={"prices": DestinationPolicy(max_messages=3, when_full="fail")})
    topic = bay.bay.topic("prices")
    for _ in range(10):
        topic.send(b"nobody subscribed")
    with topic.subscribe() as first, topic.subscribe(durable="audit") as second:
        topic.send_many([Message(b"%d" % n) for n in range(3)])
        with pytest.raises(StoreFull, match="max_messages=3 of the topic 'prices'"):
            topic.send(b"3")
        first.ack(first.take(3))
        with pytest.raises(StoreFull):  # the other one needs it
            topic.send(b"3")
        second.ack(second.take())
        topic.send(b"3")
        assert [delivery.body for delivery in first.take(3)] == [b"3"]


@pytest.mark.usefixtures("_without_looks")
@pytest.mark.parametrize("durable", [None, "audit"])
def test_an_ack_wakes_who_waits_for_room_in_a_topic(durable: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.dispatch.admission.limits.POLL_SECONDS", 1000.0)
    bay = SimulatedBay(policies={"prices": DestinationPolicy(max_messages=1)})
    topic = bay.bay.topic("prices")
    with topic.subscribe(durable=durable) as consumer:
        topic.send(b"1")
        sender = limited_sender(bay, topic, lambda: topic.send(b"2"))
        consumer.ack(consumer.take())
        sender.end()
        assert sender.error is None
    assert bay.bay.statistics().topics["prices"].blocked_sends == 1


# ------------------------------------------------------------------ explained and logged


def test_explain_names_who_holds_what_a_sender_waits_for() -> None:
    bay = full_store(when_store_full="block")
    queue = bay.queue()
    bay.clock.advance(7200)
    sender = waiting_sender(bay, bay.space.journal, lambda: queue.send(b"123", timeout=60))
    bay.clock.advance(3.2)
    for explanation in (bay.bay.explain(queue), bay.bay.explain()):
        [cause] = [cause for cause in explanation.causes if cause.reason == "blocked_send"]
        assert (cause.holder, cause.messages, cause.bytes) == ("store_limit", 1, 3)
        assert cause.oldest_seconds == pytest.approx(7203.2)
        assert "acknowledging those messages" in cause.frees
        assert "to 'orders' has been blocked 3.2 s" in explanation.sentence
        assert "; 0:filler holds 1,0" in explanation.sentence or "; 0:filler holds 9" in explanation.sentence
        assert " of 1.0 MiB, the oldest message sent 2 hours ago" in explanation.sentence
    assert not [cause for cause in bay.bay.explain(bay.queue("filler")).causes if cause.reason == "blocked_send"]
    bay.clock.advance(60)
    sender.end()
    assert not [cause for cause in bay.bay.explain(queue).causes if cause.reason == "blocked_send"]


def test_explain_names_who_fills_tmp_storage() -> None:
    bay = full_tmp()
    queue = bay.queue()
    sender = waiting_sender(bay, bay.space.tmp_storage, lambda: queue.send(b"123", persistent=False, timeout=60))
    explanation = bay.bay.explain(queue)
    assert "; 0:filler holds " in explanation.sentence
    assert "non-persistent messages of 0:filler" in explanation.causes[0].frees
    bay.clock.advance(61)
    sender.end()


@pytest.mark.parametrize(("durable", "name"), [("audit", "1:prices/audit"), (None, "1:prices")])
def test_explain_names_the_subscription_that_fills_tmp_storage(durable: str | None, name: str) -> None:
    bay = SimulatedBay(temp_limit="1MiB")
    topic = bay.bay.topic("prices")
    topic.subscribe(durable=durable)
    with pytest.raises(StoreFull):
        while True:
            topic.send(bytes(10 * KIB), persistent=False)
    line = bay.space.tmp_storage
    sender = waiting_sender(bay, line, lambda: topic.send(bytes(10 * KIB), persistent=False, timeout=60))
    explanation = bay.bay.explain()
    bay.clock.advance(61)
    sender.end()
    assert f"; {name} holds " in explanation.sentence
    assert f"consuming non-persistent messages of {name}" in [cause.frees for cause in explanation.causes]


def test_a_sender_that_waits_long_is_logged_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    bay = full_store()
    line = bay.space.journal
    full = StoreFull(1, 0, "store_limit")
    with bay.lock, caplog.at_level(logging.WARNING, "forebay.dispatch"):
        waiting = line.new_waiter(bay.queue_state("filler"), (1,), full, float("inf"), threading.Condition())
        line.line_up(waiting)
        for _ in range(100):
            bay.clock.advance(1.0)
            if not line.poll(waiting):
                line.refused(waiting, full)
                waiting.next_try += 1e9
        assert not caplog.records, "nothing is logged under the lock"
    bay.call_ready()
    times = [record.getMessage() for record in caplog.records if "has waited" in record.getMessage()]
    assert [text.split("waited ")[1].split(" s")[0] for text in times] == ["10", "20", "40", "80"]


# ------------------------------------------------------------------ asyncio


def start(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(coroutine)


def full_loop_bay(**policy: Any) -> LoopBay:
    bay = LoopBay(
        policies={"orders": DestinationPolicy(**policy), "prices": DestinationPolicy(**policy)},
        store_limit="1MiB",
        max_file_length="64KiB",
        sync="never",
    )
    for size in (10 * KIB, 0):
        with pytest.raises(StoreFull):
            while True:
                bay.queue("filler").send(bytes(size))
    return bay


@pytest.mark.parametrize("max_messages", [None, 1000])
def test_tasks_wait_for_the_store_in_order_while_the_loop_goes_on(max_messages: int | None) -> None:
    async def main() -> None:
        bay = full_loop_bay(when_store_full="block", max_messages=max_messages)
        queue = await bay.aio.queue("orders")
        with pytest.raises(StoreFull):
            await queue.send(b"x", timeout=0)
        with pytest.raises(StoreFull):
            await queue.send_many([Message(b"x")], timeout=0)
        sends = [start(queue.send(b"%d" % n)) for n in range(3)]
        sends.append(start(queue.send_many([Message(b"%d" % n) for n in range(3, 6)])))
        await ticks()
        assert not any(task.done() for task in sends)
        bay.queue("filler").purge()
        bay.bay.cleanup()
        await asyncio.gather(*sends)
        assert [message.body async for message in queue.browse()] == [b"%d" % n for n in range(6)]
        if max_messages is not None:
            limits = bay.queue_state("orders").limits
            assert limits is not None and not limits.has_senders
        assert bay.space.journal.is_empty

    run_jumping(main())


@pytest.mark.parametrize("max_messages", [None, 1000])
def test_a_cancelled_task_that_waited_has_stored_nothing_and_left_its_place(max_messages: int | None) -> None:
    async def main() -> None:
        for pauses in range(12):
            bay = full_loop_bay(when_store_full="block", max_messages=max_messages)
            queue = await bay.aio.queue("orders")
            first, second = start(queue.send(b"first")), start(queue.send(b"second"))
            await ticks()
            bay.queue("filler").purge()
            bay.bay.cleanup()
            for _ in range(pauses):
                await asyncio.sleep(0)
            first.cancel()
            results = await asyncio.gather(first, second, return_exceptions=True)
            bodies = [message.body async for message in queue.browse()]
            is_first_in = not isinstance(results[0], asyncio.CancelledError)
            assert bodies in ([b"first", b"second"], [b"second"])
            assert not is_first_in or bodies[0] == b"first"
            assert bay.space.journal.is_empty
            if max_messages is not None:
                limits = bay.queue_state("orders").limits
                assert limits is not None and not limits.has_senders

    run_jumping(main())


def test_a_task_gives_up_when_its_time_is_over() -> None:
    async def main() -> None:
        bay = full_loop_bay()
        queue = await bay.aio.queue("orders")
        sends = [start(queue.send(b"x", timeout=5)), start(queue.send_many([Message(b"x")], timeout=5))]
        await ticks()
        bay.clock.advance(6.0)
        for task in sends:
            with pytest.raises(StoreFull):
                await task
        assert queue.depth == 0

    run_jumping(main())


def test_a_topic_with_limits_lets_tasks_wait() -> None:
    async def main() -> None:
        bay = full_loop_bay(max_messages=1)
        bay.queue("filler").purge()
        bay.bay.cleanup()
        topic = await bay.aio.topic("prices")
        async with topic.subscribe() as consumer:
            await topic.send(b"1")
            waiting = start(topic.send(b"2"))
            await ticks()
            assert not waiting.done()
            [delivery] = await consumer.take()
            await delivery.ack()
            await waiting
            [delivery] = await consumer.take(timeout=None)
            assert delivery.body == b"2"

    run_jumping(main())
