"""The order of locks holds for calls from inside as well: a signal handler never waits for one that comes first."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import pytest
from inside import inside
from simulated_bay import SimulatedBay

from forebay import Closed, Forebay, NestedCall
from forebay.store.environment.locks import OwnedLock
from forebay.store.maintenance.relocation import Goal

PATIENCE_SECONDS = 10.0
GOAL = Goal(packs_closely=True, newest=0, soon_empty=frozenset())

CALLS: dict[str, Callable[[Forebay], object]] = {
    "checkpoint": lambda bay: bay.checkpoint(),
    "cleanup": lambda bay: bay.cleanup(),
    "resize": lambda bay: bay.resize("8MiB"),
    "relocation": lambda bay: inside(bay).relocation.step(GOAL),
    "sync": lambda bay: inside(bay).syncer.sync(),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("inner", ["state", "sync"])
def test_a_call_from_inside_a_later_lock_is_refused_while_another_thread_has_the_earlier_one(
    name: str, inner: str
) -> None:
    bay = SimulatedBay()
    bay.queue().send(b"x")
    bay.bay.checkpoint()
    bay.queue().send(b"y")
    locks = bay.store.locks
    held = bay.lock if inner == "state" else locks.sync
    first = locks.sync if name == "sync" else locks.checkpoint
    is_held, may_go = threading.Event(), threading.Event()

    def keep(lock: OwnedLock = first) -> None:
        with lock:
            is_held.set()
            may_go.wait(2 * PATIENCE_SECONDS)

    refused: list[BaseException] = []

    def call() -> None:
        with held:
            if held is not first:
                threading.Thread(target=keep).start()
                assert is_held.wait(PATIENCE_SECONDS)
            try:
                CALLS[name](bay.bay)
            except BaseException as error:
                refused.append(error)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    caller.join(PATIENCE_SECONDS)
    has_hung = caller.is_alive()
    may_go.set()
    assert not has_hung
    assert [type(error) for error in refused] == [NestedCall]


def test_a_close_in_a_background_thread_does_not_wait_for_the_one_that_waits_for_that_thread() -> None:
    bay = SimulatedBay()
    closed = threading.Event()

    def callback() -> None:
        bay.bay.close()
        closed.set()

    thread = threading.Thread(target=callback, daemon=True)
    bay.has_thread(thread)
    with bay.bay._closing:  # as a close that has come to the join of the background's threads
        thread.start()
        assert closed.wait(PATIENCE_SECONDS)
    thread.join()
    bay.bay.close()
    with pytest.raises(Closed):
        bay.bay.queue("orders")


class Contended(deque[Callable[[], object]]):
    """Another thread takes the last one between a look and the next step."""

    def __len__(self) -> int:
        return super().__len__() + 1


def test_two_threads_that_make_nested_calls_lose_none() -> None:
    bay = SimulatedBay()
    made: list[int] = []
    monitor = bay.bay.queue("orders").monitor
    monitor.nested_calls = Contended([lambda: made.append(1), lambda: made.append(2)])
    monitor.run_deferred()
    assert made == [1, 2]
