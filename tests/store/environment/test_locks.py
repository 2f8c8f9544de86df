"""The lock that knows its owner: it refuses the thread that has it, whoever looks at it meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest

from forebay import NestedCall, StoreFailed
from forebay.store.environment.locks import OwnedLock, holds_one


def test_a_lock_refuses_the_thread_that_has_it_and_no_other() -> None:
    lock, seen = OwnedLock(), []

    def other() -> None:
        with lock:
            seen.append(lock.is_owned())

    with lock:
        assert isinstance(within_again(lock), NestedCall)
        assert not lock.try_acquire() and lock.is_owned() and holds_one()
        thread = threading.Thread(target=other)
        thread.start()
        assert not seen
    thread.join()
    assert seen == [True] and not lock.is_owned() and lock.try_acquire()
    lock.release()


COLLECTED_IN_A_LOOK = """
import gc
from forebay.store.environment.locks import OwnedLock, holds_one

def leave_garbage():
    lock = OwnedLock()
    lock.on_late = lock.is_owned  # a circle, which nobody but the garbage collector finds

for attempt in range(300):
    gc.disable()
    gc.collect()
    for _ in range(50):
        leave_garbage()
    gc.set_threshold(gc.get_count()[0] + attempt % 6, 1, 1)  # so that it runs at one of the next allocations
    gc.enable()
    assert not holds_one()
"""


def test_locks_may_be_collected_while_somebody_looks_at_all_of_them() -> None:
    subprocess.run([sys.executable, "-P", "-X", "faulthandler", "-c", COLLECTED_IN_A_LOOK], check=True, timeout=60)


def within_again(lock: OwnedLock) -> BaseException | None:
    try:
        lock.__enter__()
    except NestedCall as error:
        return error
    return None


def test_the_bare_lock_is_the_lock_itself() -> None:
    lock, seen = OwnedLock(), []
    bare = lock.bare(nullcontext)

    def other() -> None:
        with lock:
            seen.append(lock.is_owned())

    with bare:
        assert lock.is_owned() and isinstance(within_again(lock), NestedCall)
        thread = threading.Thread(target=other)
        thread.start()
        assert not seen
    thread.join()
    assert seen == [True] and not lock.is_owned()
    with pytest.raises(ValueError), bare:
        raise ValueError
    assert not lock.is_owned()


def test_a_broken_lock_raises_an_error_of_its_own_at_each_entry_and_keeps_none_of_their_frames() -> None:
    lock = OwnedLock()
    raised: list[StoreFailed] = []
    with lock:
        lock.break_by(KeyboardInterrupt())
    for _ in range(3):
        with pytest.raises(StoreFailed, match="KeyboardInterrupt broke into") as caught, lock:
            pass
        raised.append(caught.value)
    assert len(set(map(id, raised))) == 3 and len(set(map(str, raised))) == 1
    assert {error.reason for error in raised} == {raised[0].reason}
    assert lock.failure is not None and lock.failure.__traceback__ is None and not lock.is_owned()


def test_a_lock_that_breaks_during_a_wait_raises_an_error_of_its_own_there_too() -> None:
    waiter = threading.Lock()
    waiter.acquire()

    def interrupted(waits: threading.Lock, seconds: float) -> bool:
        lock.break_between(KeyboardInterrupt())
        return True

    lock = OwnedLock(interrupted)
    with lock, pytest.raises(StoreFailed):
        lock.release_until(waiter, -1)
    assert lock.failure is not None and lock.failure.__traceback__ is None


def test_an_interruption_that_passes_two_sections_breaks_the_lock_once() -> None:
    lock = OwnedLock()
    told: list[StoreFailed] = []
    lock.on_broken.append(told.append)
    error = KeyboardInterrupt()
    with lock:
        lock.break_by(error)
        lock.break_by(error)
    assert told == [lock.failure]


def test_what_a_second_interruption_keeps_from_hearing_that_the_lock_broke_hears_it_with_that_one() -> None:
    lock = OwnedLock()
    told: list[str] = []

    def interrupted(failure: StoreFailed) -> None:
        if not told:
            told.append("interrupted")
            raise KeyboardInterrupt
        told.append("first")

    lock.on_broken += [interrupted, lambda _: told.append("second")]
    with lock:
        with pytest.raises(KeyboardInterrupt) as second:
            lock.break_by(KeyboardInterrupt())
        lock.break_by(second.value)
    assert told == ["interrupted", "first", "second"]
