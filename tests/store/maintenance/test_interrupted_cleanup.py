"""A cleanup that is interrupted anywhere is completed by the next one, or the store says that it failed."""

from __future__ import annotations

import pytest
from compiled import interpreted
from interrupting import interrupted
from staged_stores import newest, roll, send, settle, small_bay

from forebay.store.disk.layout import data_log_name

pytestmark = interpreted("calls nothing that a profiler sees")


@pytest.mark.parametrize("step", range(4))
def test_no_interruption_leaves_the_size_of_a_data_log_that_is_gone(step: int) -> None:
    at, broken, completed = 1 + step, 0, 0
    while True:
        simulated = small_bay()
        for _ in range(2):
            send(simulated, "orders", b"tea")
            settle(simulated, "orders", 1)
            roll(simulated)
        simulated.bay.checkpoint()
        where, _ = interrupted(simulated.store.cleanup.remover.remove_data_logs, at)
        if not where:
            break
        if simulated.lock.failure is not None:
            broken += 1
        else:
            completed += 1
            simulated.bay.cleanup()
            assert set(simulated.journal.sizes) == {newest(simulated)}, where
            assert not simulated.store.cleanup.remover.recorded_as_dropped, where
            assert not simulated.disk.exists(data_log_name(1)), where
        at += 4
    assert broken and completed
