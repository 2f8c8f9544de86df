"""max_messages and max_bytes of a policy: which sends are refused, which wait, and which are served first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import waiting_senders
from simulated_bay import SimulatedBay
from waiting_senders import WAIT_SECONDS, Sender

import forebay
from forebay import (
    Closed,
    DestinationPolicy,
    Forebay,
    Message,
    MessageTooLarge,
    Queue,
    SettingsError,
    StoreFull,
)
from forebay.dispatch.admission.limits import DestinationLimits


def limited(**fields: Any) -> SimulatedBay:
    return SimulatedBay(policies={"orders": DestinationPolicy(**fields)})


def limits_of(queue: Queue) -> DestinationLimits:
    found = queue.current.limits
    assert found is not None
    return found


def assert_all_given_back(queue: Queue) -> None:
    limits = limits_of(queue)
    assert (limits.reserved_messages, limits.reserved_bytes, len(limits.blocked())) == (0, 0, 0)


def waiting_sender(bay: SimulatedBay, call: Callable[[], object]) -> Sender:
    """Started, and in its place among those who wait for room in the queue "orders"."""
    return waiting_senders.waiting_sender(bay.clock, lambda: len(limits_of(bay.queue()).blocked()), call)


def acknowledge(queue: Queue, messages: int) -> list[bytes]:
    with queue.subscribe(prefetch=0) as consumer:
        taken = consumer.take(messages)
        consumer.ack(taken)
        return [delivery.body for delivery in taken]


# ------------------------------------------------------------------ what is admitted


def test_a_queue_without_limits_has_no_part_in_this() -> None:
    bay = limited(max_messages=1)
    assert bay.queue("prices").current.limits is None
    assert bay.queue("orders").current.limits is not None
    assert SimulatedBay(policies={">": DestinationPolicy(prefetch=1)}).queue().current.limits is None


def test_a_full_queue_refuses_what_is_above_max_messages_until_one_is_acknowledged() -> None:
    queue = limited(max_messages=3, when_full="fail").queue()
    for n in range(3):
        queue.send(b"%d" % n)
    with pytest.raises(StoreFull, match="max_messages=3 of the queue 'orders'"):
        queue.send(b"3")
    with queue.subscribe() as consumer:
        [delivery] = consumer.take()
        with pytest.raises(StoreFull):  # what is in flight counts
            queue.send(b"3")
        delivery.ack()
    queue.send(b"3")
    assert queue.depth == 3
    assert acknowledge(queue, 3) == [b"1", b"2", b"3"]
    assert_all_given_back(queue)


def test_bodies_and_headers_count_for_max_bytes() -> None:
    queue = limited(max_bytes=100, when_full="fail").queue()
    queue.send(b"x" * 60)
    queue.send(b"y" * 40)
    with pytest.raises(StoreFull, match="max_bytes=100 of the queue") as full:
        queue.send(b"z")
    assert (full.value.needed_bytes, full.value.available_bytes) == (1, 0)
    acknowledge(queue, 1)
    with pytest.raises(StoreFull):
        queue.send(b"x" * 55, headers={"region": "eu"})
    queue.send(b"x" * 60)
    assert queue.depth_bytes == 100


def test_a_message_above_max_bytes_is_refused_at_once_however_empty_the_queue_is() -> None:
    queue = limited(max_bytes="1KiB").queue()
    with pytest.raises(MessageTooLarge, match="max_bytes of the policy"):
        queue.send(bytes(1025))
    with pytest.raises(MessageTooLarge) as refusal:
        queue.send_many([Message(b"x"), Message(b"y"), Message(bytes(1025)), Message(b"z")])
    assert refusal.value.stored == queue.depth == 2
    assert_all_given_back(queue)


def test_of_a_batch_as_many_are_stored_as_there_is_room_for_and_the_error_says_how_many() -> None:
    queue = limited(max_messages=300, when_full="fail").queue()
    with pytest.raises(StoreFull) as full:
        queue.send_many(Message(b"%d" % n, priority=n % 3) for n in range(1000))
    assert full.value.stored == queue.depth == 300
    assert_all_given_back(queue)


def test_limits_hold_after_the_store_was_opened_again() -> None:
    bay = limited(max_messages=2, when_full="fail")
    bay.queue().send_many([Message(b"1"), Message(b"2")])
    bay.reopen()
    with pytest.raises(StoreFull):
        bay.queue().send(b"3")


def test_a_send_that_fails_otherwise_gives_its_room_back() -> None:
    policies = {"orders": DestinationPolicy(max_messages=2, when_full="fail")}
    bay = SimulatedBay(policies=policies, max_file_length="64KiB")
    queue = bay.queue()
    bad: list[Callable[[], object]] = [
        lambda: queue.send("text"),  # type: ignore[arg-type]
        lambda: queue.send(b"", priority=10),
        lambda: queue.send(b"", headers=5),  # type: ignore[arg-type]
        lambda: queue.send_many([Message(b"", priority=10)]),
    ]
    for call in bad:
        with pytest.raises(SettingsError):
            call()
    bay.disk.capacity_bytes = 0
    with pytest.raises(StoreFull, match="free space"):
        queue.send(bytes(100_000))
    assert_all_given_back(queue)
    bay.disk.capacity_bytes = 1 << 40
    queue.send_many([Message(b"1"), Message(b"2")])


# ------------------------------------------------------------------ who waits


def test_a_sender_that_finds_no_room_is_woken_by_an_ack(only_acks_wake: None) -> None:
    bay = limited(max_messages=1)
    queue = bay.queue()
    queue.send(b"1")
    sender = waiting_sender(bay, lambda: queue.send(b"2"))
    assert queue.depth == 1
    assert acknowledge(queue, 1) == [b"1"]
    sender.end()
    assert sender.error is None and queue.depth == 1
    assert acknowledge(queue, 1) == [b"2"]
    statistics = bay.bay.statistics().destinations["orders"]
    assert statistics.blocked_sends == 1
    assert_all_given_back(queue)


def test_who_waits_longest_is_served_first_and_a_small_message_passes_no_large_one(only_acks_wake: None) -> None:
    bay = limited(max_bytes=100)
    queue = bay.queue()
    queue.send(bytes(90))
    sizes = [80, 10, 60, 1, 1]
    senders = [waiting_sender(bay, lambda size=size: queue.send(bytes(size))) for size in sizes]  # type: ignore[misc]
    assert queue.depth == 1
    acknowledge(queue, 1)
    for sender in senders[:2]:
        sender.end()
    assert queue.depth_bytes == 90 and len(limits_of(queue).blocked()) == 3
    acknowledge(queue, 2)
    for sender in senders[2:]:
        sender.end()
    assert queue.depth_bytes == 62
    assert_all_given_back(queue)


def test_who_comes_before_those_who_wait_know_of_room_is_refused_by_the_limit(only_acks_wake: None) -> None:
    bay = limited(max_messages=1)
    queue = bay.queue()
    queue.send(b"1")
    first = waiting_sender(bay, lambda: queue.send(b"2"))
    with queue.subscribe() as consumer:
        consumer.waits.acks_wake_somebody = False  # so that its ack tells nobody of the room
        consumer.ack(consumer.take())
        with pytest.raises(StoreFull, match="max_messages=1"):
            queue.send(b"3", timeout=0.0)
        assert any("max_messages=1" in cause.holder for cause in bay.bay.explain(queue).causes)
        with bay.lock:
            limits_of(queue).on_room_freed()
        first.end()
    assert queue.depth == 1
    assert_all_given_back(queue)


def test_a_wait_ends_with_store_full_when_its_time_is_up() -> None:
    queue = limited(max_messages=2, block_timeout_seconds=0).queue()
    with pytest.raises(StoreFull) as full:
        queue.send_many(Message(b"%d" % n) for n in range(5))
    assert full.value.stored == queue.depth == 2
    assert_all_given_back(queue)


def test_time_that_passes_ends_a_wait_and_serves_who_stands_behind() -> None:
    bay = SimulatedBay(policies={"orders": DestinationPolicy(max_bytes=100, block_timeout_seconds=5.0)})
    queue = bay.queue()
    queue.send(bytes(50))
    large = waiting_sender(bay, lambda: queue.send(bytes(60)))
    bay.clock.advance(3.0)
    small = waiting_sender(bay, lambda: queue.send(bytes(40)))
    bay.clock.advance(2.5)
    large.end()
    small.end()
    assert isinstance(large.error, StoreFull) and small.error is None
    assert queue.depth_bytes == 90
    assert_all_given_back(queue)


def test_closing_the_store_ends_every_wait_with_closed(only_acks_wake: None) -> None:
    bay = limited(max_messages=1)
    queue = bay.queue()
    queue.send(b"1")
    senders = [waiting_sender(bay, lambda: queue.send(b"2")) for _ in range(3)]
    bay.bay.close()
    for sender in senders:
        sender.end()
        assert isinstance(sender.error, Closed)
    assert_all_given_back(queue)


@pytest.fixture
def only_acks_wake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.dispatch.admission.limits.POLL_SECONDS", 2 * WAIT_SECONDS)


@pytest.fixture(params=["always", "never"])
def open_bay(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Forebay]:
    policies = {"orders": DestinationPolicy(max_messages=10, block_timeout_seconds=WAIT_SECONDS)}
    with forebay.open(tmp_path, memory_limit="8MiB", sync=request.param, policies=policies) as bay:
        yield bay


def test_a_batch_larger_than_the_queue_may_be_goes_through_while_somebody_consumes(open_bay: Forebay) -> None:
    """What it has stored must become visible while it waits, or it would wait for itself."""
    queue = open_bay.queue("orders")
    sender = Sender(lambda: queue.send_many(Message(b"%d" % n) for n in range(500)))
    sender.start()
    found: list[int] = []
    with queue.subscribe() as consumer:
        while len(found) < 500:
            taken = consumer.take(7, timeout=WAIT_SECONDS)
            assert taken and queue.depth <= 10
            found += [int(delivery.body) for delivery in taken]
            consumer.ack(taken)
    sender.end()
    assert sender.error is None and found == list(range(500))
    assert_all_given_back(queue)


def test_many_senders_and_consumers_never_exceed_the_limit_and_none_is_forgotten(open_bay: Forebay) -> None:
    queue = open_bay.queue("orders")
    per_sender, senders_count = 60, 4
    deepest = 0
    found: list[bytes] = []

    def send(name: int) -> None:
        random = Random(name)
        n = 0
        while n < per_sender:
            many = min(random.randrange(1, 5), per_sender - n)
            if many == 1:
                queue.send(b"%d/%d" % (name, n))
            else:
                queue.send_many(Message(b"%d/%d" % (name, k)) for k in range(n, n + many))
            n += many

    senders = [Sender(lambda name=name: send(name)) for name in range(senders_count)]  # type: ignore[misc]
    for sender in senders:
        sender.start()
    with queue.subscribe() as one, queue.subscribe() as other:
        while len(found) < per_sender * senders_count:
            for consumer in (one, other):
                deepest = max(deepest, queue.depth)
                taken = consumer.take(3, timeout=0.01)
                found += [delivery.body for delivery in taken]
                for delivery in taken:
                    delivery.ack()
    for sender in senders:
        sender.end()
        assert sender.error is None
    assert 0 < deepest <= 10
    for name in range(senders_count):
        own = [int(body.split(b"/")[1]) for body in found if body.startswith(b"%d/" % name)]
        assert own == sorted(own) and len(own) == per_sender
    assert_all_given_back(queue)


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("max_messages", value) for value in (0, -1, 1.5, True, "10", 10**400 * -1)),
        *(("max_bytes", value) for value in (0, -1, 1.5, True, "10", "much")),
        *(("when_full", value) for value in ("drop", "BLOCK", None, 1)),
        *(("block_timeout_seconds", value) for value in (-1, True, "5", float("nan"), float("inf"), 1_000_001)),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_field_that_cannot_be_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(SettingsError, match=f"^{name}="):
        DestinationPolicy(**{name: value})  # type: ignore[arg-type]
