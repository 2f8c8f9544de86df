"""PeriodicTask: what fails in the background fails alone, ever more rarely, is logged once a cause, and can be seen."""

from __future__ import annotations

import errno
import logging
from math import inf
from typing import NoReturn

import pytest
from simulated_bay import SimulatedBay

from forebay.cache.process.memory_guard import MemoryGuard
from forebay.dispatch.core.monitor import Monitor
from forebay.dispatch.engine.periodic_tasks import (
    FIRST_PAUSE_SECONDS,
    PAUSE_SECONDS_MAX,
    SAME_CAUSE_SECONDS,
    PeriodicTask,
)
from forebay.dispatch.engine.task_runner import TaskRunner
from forebay.store.errors import Closed, StoreFailed, StoreFull
from forebay.testing import ManualClock


class Work:
    """Something to do that fails as long as there is an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.tries = 0
        self.task = PeriodicTask("work", self.do)

    def do(self) -> int:
        self.tries += 1
        if self.error is not None:
            raise self.error
        return 1


class RequestedTask(PeriodicTask):
    """A task that is due once somebody has asked for it."""

    def __init__(self) -> None:
        super().__init__("requested", self.do)
        self.requests = 0
        self.collected = 0

    def collect_requests(self, now: float) -> None:
        self.collected += self.requests
        self.requests = 0

    def is_due(self, now: float) -> bool:
        return self.collected > 0

    def do(self) -> int:
        done, self.collected = self.collected, 0
        return done


def no_descriptor() -> NoReturn:
    raise OSError(errno.EMFILE, "Too many open files")


def test_a_failing_task_has_a_second_try_at_once_and_then_ever_fewer() -> None:
    work = Work(OSError("no"))
    tried = []
    for millisecond in range(60_000):
        before = work.tries
        work.task.run_if_due(millisecond / 1000, millisecond)
        if work.tries > before:
            tried.append(millisecond / 1000)
    pauses = [round(later - earlier, 3) for earlier, later in zip(tried, tried[1:], strict=False)]
    wanted = [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, PAUSE_SECONDS_MAX, PAUSE_SECONDS_MAX]
    assert pauses[:10] == pytest.approx(wanted, abs=0.0011)
    assert work.task.failing is not None and work.task.failing.tries == work.tries


def test_a_failing_task_is_tried_again_though_nothing_new_is_due() -> None:
    work = Work(OSError("no"))
    assert work.task.run_if_due(0.0, 0, is_due=False) == 0 and work.tries == 0
    work.task.run_if_due(0.0, 0)
    work.error = None
    assert work.task.run_if_due(0.0, 0, is_due=False) == 1
    assert work.task.failing is None and work.task.next_at(7.0) == 7.0
    assert work.task.run_if_due(0.0, 0, is_due=False) == 0


def test_what_others_ask_of_a_task_is_done_in_the_next_step() -> None:
    task = RequestedTask()
    runner = TaskRunner(Monitor(ManualClock()), [task])
    assert runner.step() == 0
    task.requests = 2
    assert runner.step() == 2
    assert runner.step() == 0


def test_a_cause_is_logged_once_and_another_one_too(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(OSError("no"))
    for second in range(100):
        work.task.run_if_due(float(second), 0)
    assert [record.levelname for record in caplog.records] == ["ERROR"] and caplog.records[0].exc_info
    work.error = StoreFull(1, 0, "store_limit")
    for second in range(100, 200):
        work.task.run_if_due(float(second), 0)
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_a_task_that_fails_now_and_then_is_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    work, error = Work(), OSError("no")
    for second in range(3 * int(SAME_CAUSE_SECONDS)):
        work.error = error if second % 2 else None
        work.task.run_if_due(float(second), 0)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 3


def test_a_failed_store_ends_all_that_is_done() -> None:
    with pytest.raises(StoreFailed):
        Work(StoreFailed("no")).task.run_if_due(0.0, 0)


def test_a_guard_that_cannot_look_keeps_no_sync_checkpoint_or_cleanup_from_coming(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bay = SimulatedBay(sync="interval", sync_interval_seconds=0.2, cleanup_interval_seconds=0.5)
    bay.guard_with(MemoryGuard(no_descriptor, lambda: None))
    queue, began = bay.queue(), bay.clock.time_ms() / 1000
    before = bay.syncer.durations.count
    with queue.subscribe() as consumer:
        for _ in range(25):
            queue.send(b"x" * 1000)
            consumer.ack(consumer.take())
            bay.clock.advance(0.2)
            bay.bay.step()
    assert bay.syncer.durations.count - before >= 25
    failing = bay.bay.statistics().failing
    assert list(failing) == ["memory guard"] and "Too many open files" in failing["memory guard"].problem
    assert failing["memory guard"].since >= began
    assert len([record for record in caplog.records if "memory guard" in record.getMessage()]) == 1
    bay.guard_with(MemoryGuard(lambda: 1 << 20, lambda: None))
    bay.clock.advance(PAUSE_SECONDS_MAX)
    bay.bay.step()
    assert bay.bay.statistics().failing == {}


def test_work_without_a_time_of_its_own_is_tried_again_when_its_pause_is_over() -> None:
    work = Work()
    assert work.task.due_at(7.0) == inf
    work.error = OSError("no")
    work.task.run_if_due(7.0, 0)
    work.task.run_if_due(7.0, 0)
    assert work.task.due_at(7.0) == 7.0 + FIRST_PAUSE_SECONDS


def test_housekeeping_waits_no_longer_than_to_the_next_try_of_work_without_a_time() -> None:
    bay = SimulatedBay()
    bay.guard_with(MemoryGuard(no_descriptor, lambda: None))
    bay.bay.step()
    bay.bay.step()
    assert list(bay.bay.statistics().failing) == ["memory guard"]
    assert bay.pause() <= FIRST_PAUSE_SECONDS


def test_housekeeping_waits_for_the_next_try_of_what_fails() -> None:
    """What is overdue and fails does not make the background look again every millisecond."""
    bay = SimulatedBay(sync="never", cleanup_interval_seconds=1.0)
    bay.queue().send(b"x")
    bay.disk.fail("list", 1, errno.EMFILE, sticky=True)
    pauses = []
    for _ in range(200):
        pauses.append(bay.pause())
        bay.clock.advance(pauses[-1])
        bay.bay.step()
    bay.disk.cure()
    assert sum(pause <= 0.001 for pause in pauses) <= 20, pauses


def test_work_that_was_under_way_when_the_store_closed_has_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(Closed("the store"))
    assert work.task.run_if_due(0.0, 0, is_closed=lambda: True) == 0
    assert work.task.failing is None and caplog.records == []
    work.task.run_if_due(0.0, 0, is_closed=lambda: False)
    assert work.task.failing is not None
    [record] = caplog.records
    assert "the store is closed" in record.getMessage()
