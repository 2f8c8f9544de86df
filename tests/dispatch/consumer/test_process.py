"""`Consumer.process`: a handler is called with each message; what becomes of the message follows from how it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from delivering import numbered_messages
from simulated_bay import SimulatedBay

from forebay import ArgumentError, Closed, Consumer, Delivery, DestinationPolicy, Message, SettingsError
from forebay.dispatch.consumer.processing import MessageGroupTurns

PATIENCE_SECONDS = 30


def numbered(count: int, **policy: Any) -> SimulatedBay:
    bay = SimulatedBay(policies={">": DestinationPolicy(max_attempts=3, **policy)})
    bay.queue().send_many(numbered_messages(count))
    return bay


class Handler:
    """Notes what it is called with, does what it is told for some of it, and drains at the end."""

    def __init__(
        self, consumer: Consumer, calls: int, does: Callable[[Delivery], object] = lambda delivery: None
    ) -> None:
        self._consumer = consumer
        self._left = calls
        self._does = does
        self._lock = threading.Lock()
        self.seen: list[tuple[bytes, int]] = []

    def __call__(self, delivery: Delivery) -> object:
        with self._lock:
            self.seen.append((delivery.body, delivery.attempts))
            self._left -= 1
            is_last = self._left == 0
        try:
            return self._does(delivery)
        finally:
            if is_last:
                self._consumer.drain(timeout=0)


# ------------------------------------------------------------------ one thread


def test_a_handler_that_returns_acknowledges_in_order_until_the_consumer_drains() -> None:
    bay = numbered(5)
    with bay.queue().subscribe() as consumer:
        handler = Handler(consumer, 4)
        consumer.process(handler)
        assert handler.seen == [(b"0", 1), (b"1", 1), (b"2", 1), (b"3", 1)]
        assert consumer.in_flight == 0 and bay.queue().depth == 1
    bay.check()


def test_one_that_raises_gives_back_after_the_delay_of_the_policy_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bay = numbered(2, redelivery_delay_seconds=10.0)

    def fail(delivery: Delivery) -> None:
        if delivery.body == b"0" and delivery.attempts == 1:
            raise ZeroDivisionError("no tea")

    with bay.queue().subscribe() as consumer, caplog.at_level(logging.ERROR):
        handler = Handler(consumer, 2, fail)
        consumer.process(handler)
        assert handler.seen == [(b"0", 1), (b"1", 1)]
    [record] = caplog.records
    assert record.__dict__["event"] == "handler_raised" and "ZeroDivisionError at attempt 1" in record.getMessage()
    assert record.exc_info
    bay.clock.advance(10.0)
    bay.bay.step()
    with bay.queue().subscribe() as consumer:
        handler = Handler(consumer, 1, fail)
        consumer.process(handler)
        assert handler.seen == [(b"0", 2)] and bay.queue().depth == 0
    bay.check()


def test_without_a_delay_it_comes_again_before_all_others_and_ends_as_a_dead_letter() -> None:
    bay = numbered(2, dead_letter_queue="dead")

    def fail(delivery: Delivery) -> None:
        if delivery.body == b"0":
            raise ValueError

    with bay.queue().subscribe() as consumer:
        handler = Handler(consumer, 4, fail)
        consumer.process(handler)
        assert handler.seen == [(b"0", 1), (b"0", 2), (b"0", 3), (b"1", 1)]
    bay.bay.step()
    assert bay.queue("dead").depth == 1 and bay.queue().depth == 0
    bay.check()


class Unspeakable(ValueError):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("not tea"), "ValueError: not tea"),
        (UnicodeError("\ud800"), "UnicodeError: ?"),
        (Unspeakable(), "Unspeakable"),
        (ValueError("x" * 10_000), "ValueError: " + "x" * 488),
    ],
)
def test_exceptions_of_reject_on_make_a_dead_letter_at_once(
    error: Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "forebay.dispatch")  # what reports of tests are sent with takes no surrogates
    bay = SimulatedBay(policies={"orders": DestinationPolicy(dead_letter_queue="dead")})
    bay.queue().send(b"x")

    def fail(delivery: Delivery) -> None:
        raise error

    with bay.queue().subscribe() as consumer:
        consumer.process(Handler(consumer, 1, fail), reject_on=(KeyError, ValueError))
    [dead] = bay.queue("dead").browse()
    assert (dead.headers or {})["dead_letter_reason"] == reason and bay.queue().depth == 0
    bay.check()


def test_what_the_handler_settled_itself_stays_as_it_is() -> None:
    bay = numbered(4)

    def settle(delivery: Delivery) -> None:
        if delivery.attempts == 1:
            calls: dict[bytes, Callable[[], None]] = {
                b"0": delivery.ack,
                b"1": delivery.nack,
                b"2": delivery.release,
                b"3": delivery.reject,
            }
            calls[delivery.body]()

    with bay.queue().subscribe() as consumer:
        handler = Handler(consumer, 6, settle)
        consumer.process(handler)
        assert [body for body, _ in handler.seen[:3]] == [b"0", b"1", b"1"] and (b"2", 1) in handler.seen
    bay.check()


def test_a_queue_that_is_deleted_meanwhile_ends_it() -> None:
    bay = numbered(3)
    with bay.queue().subscribe() as consumer:
        handler = Handler(consumer, 9, lambda delivery: bay.queue().delete())
        consumer.process(handler)
        assert handler.seen == [(b"0", 1)]
        consumer.process(handler)
    bay.check()


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize(("kind", "attempts"), [(KeyboardInterrupt, 1), (SystemExit, 2)])
def test_an_interruption_ends_it_and_goes_up(kind: type[BaseException], attempts: int, concurrency: int) -> None:
    bay = numbered(1)

    def leave(delivery: Delivery) -> None:
        raise kind

    with bay.queue().subscribe() as consumer:
        with pytest.raises(kind):
            consumer.process(leave, concurrency)
        assert consumer.in_flight == 0 and consumer.is_draining
    with bay.queue().subscribe() as consumer:
        assert [delivery.attempts for delivery in consumer.take(9)] == [attempts]
    bay.check()


async def coroutine(delivery: Delivery) -> None:
    pass


def test_arguments_are_checked_before_anything_is_taken_and_a_coroutine_is_refused() -> None:
    bay = numbered(1)
    with bay.queue().subscribe() as consumer:
        for handler, fields in (
            (7, {}),
            (coroutine, {}),
            (print, {"concurrency": "2"}),
            (print, {"reject_on": BaseException}),
            (print, {"reject_on": (ValueError, 7)}),
        ):
            with pytest.raises(ArgumentError):
                consumer.process(handler, **fields)  # type: ignore[arg-type]
        with pytest.raises(SettingsError, match="concurrency"):
            consumer.process(print, 0)
        assert consumer.in_flight == 0 and not consumer.is_draining
        with pytest.raises(ArgumentError, match="coroutine"):
            consumer.process(lambda delivery: coroutine(delivery))
    with bay.queue().subscribe() as consumer:
        assert [delivery.attempts for delivery in consumer.take()] == [1]
    bay.check()


# ------------------------------------------------------------------ several threads


def test_so_many_handlers_work_at_a_time_and_each_message_is_handled_once() -> None:
    bay = numbered(30)
    together = threading.Barrier(3)
    with bay.queue().subscribe() as consumer:
        handler = Handler(consumer, 30, lambda delivery: together.wait(PATIENCE_SECONDS))
        consumer.process(handler, 3)
        assert sorted(handler.seen) == sorted((b"%d" % n, 1) for n in range(30))
        assert bay.queue().depth == 0 == consumer.in_flight
    bay.check()


def test_closing_the_consumer_elsewhere_ends_all_threads() -> None:
    bay = numbered(0)
    consumer = bay.queue().subscribe()
    thread = threading.Thread(target=consumer.process, args=(print, 4), daemon=True)
    thread.start()
    consumer.close()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    consumer.process(print, 4)
    bay.bay.close()
    with pytest.raises(Closed):
        consumer.drain()


def test_an_error_in_one_thread_ends_all_and_what_the_others_work_on_is_settled() -> None:
    bay = numbered(3)
    all_began, failed = threading.Barrier(3), threading.Event()

    def work(delivery: Delivery) -> None:
        all_began.wait(PATIENCE_SECONDS)
        if delivery.body == b"1":
            failed.set()
            raise SystemExit(7)
        assert failed.wait(PATIENCE_SECONDS)

    with bay.queue().subscribe() as consumer:
        with pytest.raises(SystemExit):
            consumer.process(work, 3)
        assert bay.queue().depth == 1 and consumer.in_flight == 0
    bay.check()


@pytest.mark.parametrize("seed", range(6))
def test_messages_of_a_group_are_handled_one_after_the_other_and_in_order_also_where_some_fail(seed: int) -> None:
    random = Random(seed)
    bay = SimulatedBay(seed, policies={">": DestinationPolicy(max_attempts=None)})
    queue = bay.queue()
    groups = [random.choice(["tea", "rice", "oil", None]) for _ in range(200)]
    queue.send_many(Message(b"%d" % n, group=group) for n, group in enumerate(groups))
    fails = {(b"%d" % n, 1) for n in random.sample(range(200), 40)}
    releases = {(b"%d" % n, 1) for n in random.sample(range(200), 20)} - fails
    busy: set[str] = set()
    done: dict[str, list[int]] = {}
    lock = threading.Lock()
    done_count = 0
    with queue.subscribe(prefetch=random.choice([0, 5, 50])) as consumer:

        def work(delivery: Delivery) -> None:
            nonlocal done_count
            group, key = delivery.group, (delivery.body, delivery.attempts)
            with lock:
                assert group not in busy, f"seed {seed}"
                if group is not None:
                    busy.add(group)
            threading.Event().wait(0)  # another thread may go on here
            with lock:
                busy.discard(group or "")
            if key in releases:
                releases.discard(key)
                delivery.release()
            elif key in fails:
                fails.discard(key)
                raise ValueError
            else:
                with lock:
                    if group is not None:
                        done.setdefault(group, []).append(int(delivery.body))
                    done_count += 1
                    is_last = done_count == 200
                if is_last:
                    consumer.drain(timeout=0)

        logging.disable()
        try:
            consumer.process(work, 5)
        finally:
            logging.disable(logging.NOTSET)
    assert done_count == 200 and queue.depth == 0
    assert all(numbers == sorted(numbers) for numbers in done.values()), f"seed {seed}: {done}"
    bay.check()


def test_another_thread_has_the_next_message_of_another_group_while_one_of_a_group_is_handled() -> None:
    bay = SimulatedBay()
    bay.queue().send_many(Message(body, group=group) for body, group in [(b"1", "tea"), (b"2", "tea"), (b"3", "oil")])
    came_meanwhile = threading.Event()
    bodies: list[bytes] = []
    with bay.queue().subscribe(prefetch=0) as consumer:

        def work(delivery: Delivery) -> None:
            bodies.append(delivery.body)
            if len(bodies) == 1:
                assert came_meanwhile.wait(PATIENCE_SECONDS)
            came_meanwhile.set()
            if len(bodies) == 3:
                consumer.drain(timeout=0)

        consumer.process(work, 2)
    assert bodies == [b"1", b"3", b"2"]
    bay.check()


@pytest.mark.parametrize("is_behind_another", [False, True])
def test_a_callback_for_what_goes_back_holds_up_no_other_handler(*, is_behind_another: bool) -> None:
    bay = SimulatedBay()
    bay.queue().send_many(Message(body, group=group) for body, group in [(b"1", "tea"), (b"2", "tea"), (b"3", "oil")])
    turns = MessageGroupTurns()
    taken: list[Delivery] = []
    begun: list[bool] = []

    def have_another_begin() -> None:
        if taken:
            other = threading.Thread(target=turns.begin, args=(taken[2], turns.returns), daemon=True)
            other.start()
            other.join(PATIENCE_SECONDS)
            begun.append(not other.is_alive())

    with bay.queue().subscribe(prefetch=0, on_ready=have_another_begin) as consumer:
        taken += consumer.take(3)
        first, second, _ = taken
        assert not consumer.take()
        if is_behind_another:
            assert turns.begin(first, turns.returns) and not turns.begin(second, turns.returns)
            turns.go_back(first)
        else:
            assert not turns.begin(second, turns.returns - 1)
        assert begun == [True]
    bay.check()


def test_a_handler_may_settle_a_large_message_of_a_group_that_stays_on_disk() -> None:
    """It can't be asked for its group then, and the next of its group comes all the same."""
    bay = SimulatedBay(memory_limit="4MiB")
    bay.queue().send_many(Message(b"%d" % n + bytes(700_000), group="tea") for n in range(3))
    bay.reopen()
    with bay.queue().subscribe() as consumer:
        bodies = []

        def settle(delivery: Delivery) -> None:
            bodies.append(delivery.body[:1])
            delivery.ack()
            if len(bodies) == 3:
                consumer.drain(timeout=0)

        consumer.process(settle, concurrency=2)
    assert bodies == [b"0", b"1", b"2"]
    assert bay.queue().depth == 0
    bay.check()
