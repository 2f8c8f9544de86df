"""Threads of a store that failed end, and whoever waits is told, wherever they find out."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import NoReturn

import pytest
from compiled import interpreted
from inside import inside
from simulated_bay import SimulatedBay

import forebay
from forebay.cache.process.memory_guard import MemoryGuard
from forebay.cache.spill.overflow import Overflow
from forebay.dispatch.engine import engine as engine_module
from forebay.dispatch.engine.background import Background, BackgroundRequests


@pytest.mark.parametrize("finds_out", ["at its work", "behind its work"])
def test_a_failed_store_is_told_of_by_the_thread_that_finds_out(finds_out: str) -> None:
    bay = SimulatedBay()
    monitor, told = bay.queue().monitor, [False]

    def load() -> bool:
        monitor.lock.break_by(KeyboardInterrupt())
        monitor.deferred.append(lambda: None)
        if finds_out == "at its work":
            with monitor.lock:
                pass
        return False

    def tell() -> None:
        told[0] = True

    background = Background(monitor, BackgroundRequests(has_threads=True), bay.loads, load, lambda: 0, lambda: 3_600.0)
    background.start(tell)
    for thread in background._threads:
        if thread.name == "forebay-loader":
            thread.join(30.0)
            assert not thread.is_alive()
    background.stop(30.0)
    assert told == [True] and not background.is_alive


def test_the_last_status_of_a_store_that_was_interrupted_says_so(tmp_path: Path) -> None:
    with forebay.open(tmp_path, memory_limit="4MiB", status_interval_seconds=1.0) as bay:
        monitor = bay.queue("orders").monitor
        monitor.lock.break_by(KeyboardInterrupt())
        monitor.deferred.append(lambda: None)
        inside(bay).background_requests.wake_loader()
        for thread in inside(bay).threads:
            if thread.name == "forebay-loader":
                thread.join(30.0)
        assert bay.health().problems == (str(monitor.lock.failure),)
        [file] = tmp_path.rglob("status.json")
        status = json.loads(file.read_text())
        assert not status["health"]["ok"] and "KeyboardInterrupt" in str(status["health"]["problems"])


def test_a_store_whose_threads_cannot_be_started_leaves_none_and_can_be_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = threading.Thread.start, list[threading.Thread]()

    def start_one(thread: threading.Thread) -> None:
        if thread.name == "forebay-housekeeper":
            raise RuntimeError("can't start new thread")
        start(thread)
        started.append(thread)

    monkeypatch.setattr(threading.Thread, "start", start_one)
    with pytest.raises(RuntimeError, match="start new thread"):
        forebay.open(tmp_path, memory_limit="4MiB")
    assert [thread.name for thread in started] == ["forebay-loader"] and not started[0].is_alive()
    with forebay.open(tmp_path, memory_limit="4MiB", background=False) as bay:
        assert bay.destinations() == []


def test_a_thread_is_waited_for_whose_start_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, join, joined = threading.Thread.start, threading.Thread.join, list[str]()

    def start_and_interrupt(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "forebay-loader":
            raise KeyboardInterrupt

    def note_join(thread: threading.Thread, timeout: float | None = None) -> None:
        joined.append(thread.name)
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "start", start_and_interrupt)
    monkeypatch.setattr(threading.Thread, "join", note_join)
    with pytest.raises(KeyboardInterrupt):
        forebay.open(tmp_path, memory_limit="4MiB")
    assert joined == ["forebay-loader"]


@interpreted("replaces what compiled code has linked")
@pytest.mark.parametrize("fails", ["at its start", "before"])
def test_an_open_that_fails_closes_the_trace(fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise MemoryError

    before = set(os.listdir("/proc/self/fd"))
    if fails == "before":
        monkeypatch.setattr(engine_module, "open_store_layer", fail)
    else:
        monkeypatch.setattr(Background, "start", fail)
    with pytest.raises(MemoryError):
        forebay.open(tmp_path / "data", memory_limit="8MiB", record_trace=str(tmp_path / "trace"))
    assert set(os.listdir("/proc/self/fd")) == before


@interpreted("replaces what compiled code has linked")
def test_an_open_whose_threads_cannot_be_started_deletes_what_they_spilled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Overflow] = []
    monkeypatch.setattr(Overflow, "close", lambda overflow: closed.append(overflow))

    def fail(*_: object) -> NoReturn:
        raise MemoryError

    monkeypatch.setattr(Background, "start", fail)
    with pytest.raises(MemoryError):
        forebay.open(tmp_path, memory_limit="4MiB")
    assert len(closed) == 1


def test_a_task_that_outlives_the_close_of_its_store_ends_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bay = forebay.open(tmp_path, memory_limit="4MiB")
    store, threads = inside(bay).store, inside(bay).threads
    has_begun, may_go_on = threading.Event(), threading.Event()

    def checkpoint_late() -> NoReturn:
        has_begun.set()
        assert may_go_on.wait(30.0)
        store.checkpointer.checkpoint()
        raise AssertionError("the store is closed")

    inside(bay).guard_with(MemoryGuard(checkpoint_late, lambda: None))
    inside(bay).background_requests.wake_housekeeper()
    assert has_begun.wait(30.0)
    bay.close(timeout=0)
    may_go_on.set()
    for thread in threads:
        thread.join(30.0)
        assert not thread.is_alive()
    assert caplog.records == []
