"""The sections of an open store: what enters them, and what an exception does to the lock."""

from __future__ import annotations

import pytest

from forebay import Closed
from forebay.dispatch.core.monitor import Monitor
from forebay.store.environment.clock import SystemClock


def test_a_section_while_open_is_not_entered_once_the_store_is_closed() -> None:
    monitor = Monitor(SystemClock())
    entered: list[str] = []
    with monitor.lock, monitor.while_open:
        entered.append("open")
    monitor.is_closed = True
    with pytest.raises(Closed), monitor.lock, monitor.while_open:
        entered.append("closed")
    assert entered == ["open"]
    assert monitor.lock.failure is None and not monitor.lock.is_owned()


def test_what_breaks_into_a_section_while_open_breaks_the_lock() -> None:
    monitor = Monitor(SystemClock())
    with pytest.raises(KeyboardInterrupt), monitor.lock, monitor.while_open:
        raise KeyboardInterrupt
    assert monitor.lock.failure is not None and not monitor.lock.is_owned()
