"""How much a kill leaves to replay: at most twice `max_checkpoint_adds` messages, however slow a checkpoint is."""

from __future__ import annotations

import threading

import pytest
from compiled import interpreted
from simulated_bay import SimulatedBay

from forebay import Message

ADDS = 100
SLICE = 256


def with_a_checkpoint_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> tuple[SimulatedBay, list[int]]:
    """A store with a thread that was asked for one, and how much was added whenever a sender went for it itself."""
    bay = SimulatedBay(max_checkpoint_adds=ADDS)
    bay.has_thread(threading.current_thread())
    waited: list[int] = []
    need = bay.store.index.checkpoint_need
    monkeypatch.setattr(bay.store.checkpointer, "checkpoint", lambda: waited.append(need.adds))
    return bay, waited


@interpreted("replaces what compiled code has linked")
def test_senders_wait_for_a_checkpoint_that_is_behind_by_as_many_messages_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bay, waited = with_a_checkpoint_that_does_not_come(monkeypatch)
    for _ in range(2 * ADDS + 3):
        bay.queue().send(b"x")
    assert waited == [2 * ADDS, 2 * ADDS + 1, 2 * ADDS + 2, 2 * ADDS + 3]


@interpreted("replaces what compiled code has linked")
def test_a_batch_waits_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    bay, waited = with_a_checkpoint_that_does_not_come(monkeypatch)
    bay.queue().send_many(Message(b"x") for _ in range(4 * SLICE))
    assert waited[0] <= 2 * ADDS + SLICE


def test_a_kill_leaves_no_more_to_replay() -> None:
    bay = SimulatedBay(max_checkpoint_adds=ADDS)
    for n in range(7 * ADDS + ADDS // 2):
        bay.queue().send(b"%d" % n)
    bay.crash()
    assert ADDS // 2 <= bay.bay.recovery.replayed_records < 2 * ADDS
    assert bay.queue().depth == 7 * ADDS + ADDS // 2
