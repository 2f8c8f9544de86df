"""What comes by itself comes at its interval: not before, and not long after. And a page of the index has its size."""

from __future__ import annotations

from pathlib import Path

import pytest
from compiled import interpreted
from simulated_bay import SimulatedBay

import forebay


def steps_until(bay: SimulatedBay, name: str, monkeypatch: pytest.MonkeyPatch, *, owner: object) -> list[int]:
    """The seconds, of thirty, in which a method was called by the background. A message is sent in each."""
    called: list[int] = []
    real = getattr(owner, name)

    def noted(*args: object, **fields: object) -> object:
        called.append(round(bay.clock.monotonic() - began))
        return real(*args, **fields)

    bay.bay.step()
    began = bay.clock.monotonic()
    monkeypatch.setattr(owner, name, noted)
    for _ in range(30):
        bay.queue().send(b"x")
        bay.clock.advance(1)
        bay.bay.step()
    return called


@interpreted("replaces what compiled code has linked")
@pytest.mark.parametrize("seconds", [5, 9])
def test_checkpoint_comes_at_its_interval(seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bay = SimulatedBay(checkpoint_interval_seconds=seconds, cleanup_interval_seconds=3600)
    called = steps_until(bay, "checkpoint", monkeypatch, owner=bay.store.checkpointer)
    assert called == list(range(seconds, 31, seconds))


@interpreted("replaces what compiled code has linked")
@pytest.mark.parametrize("seconds", [5, 9])
def test_cleanup_comes_at_its_interval(seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bay = SimulatedBay(checkpoint_interval_seconds=3600, cleanup_interval_seconds=seconds)
    called = steps_until(bay, "delete_data_logs", monkeypatch, owner=bay.store.cleanup)
    assert called == list(range(seconds, 31, seconds))


@interpreted("replaces what compiled code has linked")
@pytest.mark.parametrize("seconds", [5, 9])
def test_sync_comes_at_its_interval(seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"checkpoint_interval_seconds": 3600, "cleanup_interval_seconds": 3600}
    bay = SimulatedBay(sync="interval", sync_interval_seconds=seconds, **fields)
    called = steps_until(bay, "sync", monkeypatch, owner=bay.syncer)
    assert called == list(range(seconds, 31, seconds))


@pytest.mark.parametrize("size", [4096, 32768])
def test_page_of_the_index_has_the_size_that_was_asked_for(size: int, tmp_path: Path) -> None:
    forebay.open(tmp_path, memory_limit="8MiB", index_page_size=size).close()
    header = (tmp_path / "localhost" / "kr-store" / "data" / "places.db").read_bytes()[:18]
    assert int.from_bytes(header[16:18], "big") == size
