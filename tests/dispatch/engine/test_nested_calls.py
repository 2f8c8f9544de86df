"""Calls from inside a call of the same thread (signal handlers, finalizers, log handlers) never wait for themselves."""

from __future__ import annotations

import ast
import gc
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from compiled import interpreted
from inside import inside
from simulated_bay import SimulatedBay

import forebay
from forebay import Closed, DestinationPolicy, Message, NestedCall, StateError, StoreFailed, StoreLocked
from forebay.store.environment.late_log import LateLogger, emit_late
from forebay.store.environment.locks import OwnedLock, holds_one

ROOT = Path(forebay.__file__).parent


def within(lock: OwnedLock, call: Callable[[], object]) -> BaseException | None:
    """Call it as a signal handler does that comes while this thread has the lock; what it raised."""
    with lock:
        try:
            call()
        except BaseException as error:
            return error
    return None


def test_calls_from_inside_are_refused_in_words_and_change_nothing() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    consumer = queue.subscribe()
    queue.send(b"1")
    calls: list[Callable[[], object]] = [
        lambda: queue.send(b"2"),
        lambda: queue.send_many([Message(b"2")]),
        consumer.take,
        lambda: bay.bay.queue("another"),
        queue.subscribe,
        queue.purge,
        bay.bay.statistics,
        bay.bay.step,
    ]
    for call in calls:
        error = within(bay.lock, call)
        assert isinstance(error, NestedCall) and "set an event" in str(error), call
    assert queue.depth == 1 and len(consumer.take()) == 1
    assert not bay.bay.statistics().failing, "a refused step is no failed background work"
    bay.check()


def test_a_step_is_refused_inside_each_lock_that_its_work_would_take() -> None:
    """A handler is met most often where a thread syncs or checkpoints, and holds no state lock there."""
    bay = SimulatedBay(sync="interval")
    queue = bay.queue()
    queue.send(b"1")
    bay.clock.advance(60.0)
    for lock in (bay.store.locks.sync, bay.store.locks.checkpoint):
        assert isinstance(within(lock, bay.bay.step), NestedCall)
    assert not bay.bay.statistics().failing, "a refused step is no failed background work"
    assert bay.bay.step() and not bay.bay.statistics().failing
    bay.check()


def test_the_paths_of_single_messages_refuse_who_is_inside_and_everybody_after_a_break() -> None:
    """They enter the lock by its C entry, which refuses nobody, and ask themselves."""
    bay = SimulatedBay()
    queue = bay.queue()
    consumer = queue.subscribe()
    for _ in range(3):
        queue.send(b"1")
    [held] = consumer.take()
    paths: list[Callable[[], object]] = [
        lambda: queue.send(b"2"),
        lambda: queue.send(b"2", persistent=False),
        consumer.take,
        lambda: consumer.take(10),
        lambda: consumer.ack(held),
    ]
    for path in paths:
        assert isinstance(within(bay.lock, path), NestedCall)
    assert queue.depth == 3 and consumer.in_flight == 1
    bay.check()
    with bay.lock:
        bay.lock.break_by(KeyboardInterrupt())
    for path in paths:
        with pytest.raises(StoreFailed, match="KeyboardInterrupt"):
            path()
    assert not bay.lock.is_owned()


def test_a_consumer_closed_from_inside_is_closed_when_the_call_has_ended() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    consumer, other = queue.subscribe(), queue.subscribe()
    queue.send(b"1")
    assert len(consumer.take()) == 1
    assert within(bay.lock, consumer.close) is None
    queue.send(b"2")  # any call
    with pytest.raises(Closed):
        consumer.take()
    assert [delivery.body for delivery in other.take(10)] == [b"1", b"2"]
    bay.check()


def test_a_store_closed_from_inside_is_closed_when_the_call_has_ended() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    assert within(bay.lock, bay.bay.close) is None
    assert within(bay.lock, bay.bay.close) is None
    bay.bay.step()
    with pytest.raises(Closed):
        queue.send(b"1")
    bay.reopen()
    assert bay.bay.recovery.clean


class Interrupt(BaseException):
    """Not to be caught by anybody."""


def at_each_place_of_the_store(
    call: Callable[[], object], do: Callable[[], object], nth: int, place: str = "line"
) -> bool:
    """Call it, and do something before the nth line of the library that it comes to, or where its nth function begins
    ("call"), as a signal handler would. It may raise only there: a line event comes also between the body of a `with`
    and its end, where the interpreter runs no handler.
    """
    places = iter(range(nth))
    done = False

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal done
        if not frame.f_code.co_filename.startswith(str(ROOT)) or "/tests/" in frame.f_code.co_filename:
            return None
        if event == place and not done and next(places, None) is None:
            done = True
            sys.settrace(None)
            do()
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return done


@interpreted("comes between the lines of what is called")
def test_a_close_between_any_two_lines_of_a_send_a_take_and_an_ack_hangs_nowhere_and_closes() -> None:
    done, nth = True, 0
    while done:
        bay = SimulatedBay()
        queue = bay.queue()
        consumer = queue.subscribe()
        queue.send(b"1")

        def traffic(queue: Any = queue, consumer: Any = consumer) -> None:
            queue.send(b"2")
            consumer.ack(consumer.take())

        try:
            done = at_each_place_of_the_store(traffic, bay.bay.close, nth)
        except (Closed, StateError):
            pass  # closed between take and ack
        if done:
            bay.lock_is_free()
            bay.run_nested_calls()
            with pytest.raises(Closed):
                queue.send(b"3")
        nth += 3
    assert nth > 100


@interpreted("comes between the lines of what is called")
def test_a_consumer_closed_between_any_two_lines_of_another_ones_calls_is_closed() -> None:
    done, nth = True, 0
    while done:
        bay = SimulatedBay()
        queue = bay.queue()
        consumer, other = queue.subscribe(prefetch=2), queue.subscribe(prefetch=2)
        queue.send_many(Message(b"%d" % n) for n in range(4))
        held = other.take(1)

        def traffic(queue: Any = queue, consumer: Any = consumer) -> None:
            queue.send(b"2")
            consumer.ack(consumer.take())

        done = at_each_place_of_the_store(traffic, other.close, nth)
        bay.run_nested_calls()
        with pytest.raises(Closed) if done else pytest.MonkeyPatch.context():
            other.take()
        assert len(held) == 1
        bay.check()
        nth += 3
    assert nth > 100


def test_a_finalizer_that_closes_its_consumer_inside_a_call_hangs_nothing() -> None:
    bay = SimulatedBay()
    queue = bay.queue()

    class Session:
        def __init__(self) -> None:
            self.me = self
            self.consumer = queue.subscribe(prefetch=5)

        def __del__(self) -> None:
            self.consumer.close()

    for _ in range(20):
        Session()
        with bay.lock:
            gc.collect()
        queue.send(b"x")
    bay.run_nested_calls()
    assert bay.bay.statistics().destinations["orders"].consumers == 0
    bay.check()


# Logs.


class Shipper(logging.Handler):
    """Ships its records through the store itself."""

    def __init__(self, send: Callable[[bytes], object]) -> None:
        super().__init__()
        self.send = send
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert not holds_one(), record.getMessage()
        self.lines.append(record.getMessage())
        self.send(record.getMessage().encode())


@pytest.fixture
def shipped() -> Iterator[Callable[[Callable[[bytes], object]], Shipper]]:
    handlers: list[Shipper] = []

    def ship(send: Callable[[bytes], object]) -> Shipper:
        handlers.append(Shipper(send))
        logging.getLogger("forebay").addHandler(handlers[-1])
        return handlers[-1]

    yield ship
    for handler in handlers:
        logging.getLogger("forebay").removeHandler(handler)


def test_a_log_handler_may_send_its_records_through_the_store(
    shipped: Callable[[Callable[[bytes], object]], Shipper],
) -> None:
    bay = SimulatedBay(policies={"orders": DestinationPolicy(slow_consumer_seconds=1.0)})
    logs = bay.queue("logs")
    shipper = shipped(logs.send)
    bay.queue().send(b"1")
    consumer = bay.queue().subscribe()
    consumer.take()
    for _ in range(5):
        bay.clock.advance(1.0)
        bay.bay.step()
    assert any("a consumer of 'orders'" in line for line in shipper.lines)
    assert logs.depth == len(shipper.lines)


def test_what_is_logged_under_a_lock_keeps_its_time_place_and_error(caplog: pytest.LogCaptureFixture) -> None:
    emit_late()  # of other stores of this process
    caplog.clear()
    logger, lock = LateLogger("forebay.store"), OwnedLock()
    with lock:
        try:
            raise ValueError("cause")
        except ValueError:
            logger.exception("it %s", "failed", event="failed")
        logger.debug("not wanted", event="unwanted")
        assert not caplog.records
        emit_late()
        assert not caplog.records, "still inside"
    emit_late()
    [record] = caplog.records
    assert record.getMessage() == "it failed" and record.exc_info and record.filename == Path(__file__).name
    assert record.funcName == "test_what_is_logged_under_a_lock_keeps_its_time_place_and_error"
    logger.warning("at once", event="warned")
    assert caplog.records[-1].funcName == record.funcName and len(caplog.records) == 2
    assert [getattr(found, "event", None) for found in caplog.records] == ["failed", "warned"]


def test_no_handler_is_called_but_by_the_late_log() -> None:
    """The rule of the house: layers make no logger of their own, and warn only where no lock is held.

    The finalizer in forebay.py looks first, and puts the warning off until the lock is free (test_reprs_and_warnings).
    """
    found = []
    for layer in ("store", "cache", "dispatch"):
        for path in (ROOT / layer).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("logging.getLogger", "warnings.warn"):
                    found.append(path.name)
    assert sorted(set(found)) == ["forebay.py", "late_log.py", "settings.py"]


# An interrupted close.


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may come in a __del__
@interpreted("interrupts between the lines of what is called")
def test_an_interrupted_close_keeps_the_directory_until_another_one_has_ended(tmp_path: Path) -> None:
    done, nth, kept = True, 0, 0
    while done:
        bay = forebay.open(tmp_path, memory_limit="4MiB", background=False)
        bay.queue("orders").send(b"x")

        def interrupt() -> None:
            raise Interrupt

        try:
            done = at_each_place_of_the_store(bay.close, interrupt, nth, "call")
        except Interrupt:
            done = True
            try:
                forebay.open(tmp_path, memory_limit="4MiB", background=False).close()
            except StoreLocked:
                kept += 1
        try:
            bay.close()
        except StoreFailed:
            pass  # the interruption came inside the last checkpoint: the next open replays the journal
        with forebay.open(tmp_path, memory_limit="4MiB", background=False) as again:
            assert again.queue("orders").depth > 0
        nth += 3
    assert kept > 20


@interpreted("replaces a method")
def test_a_close_that_fails_ends_its_threads_before_it_lets_the_directory_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bay = forebay.open(tmp_path, memory_limit="4MiB")
    bay.queue("orders").send(b"x")
    threads = inside(bay).threads
    assert len(threads) == 2

    def fail(_: object) -> None:
        raise KeyError("a list that an interruption left half changed")

    with monkeypatch.context() as broken:
        broken.setattr(type(inside(bay).transactions), "close", fail)
        with pytest.raises(KeyError):
            bay.close()
    assert not any(thread.is_alive() for thread in threads)
    with forebay.open(tmp_path, memory_limit="4MiB", background=False) as again:
        assert again.queue("orders").depth == 1
