"""A disk that fails while a store opens: StoreFailed, and the next try finds what was there."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest
from simulated_bay import SimulatedBay

import forebay
from forebay import Message, StoreFailed
from forebay.dispatch.engine import engine as engine_module


@pytest.mark.parametrize("store_limit", [None, "50%"])
def test_disk_that_cannot_tell_its_free_room_refuses_the_open_and_loses_nothing(store_limit: str | None) -> None:
    bay = SimulatedBay(store_limit=store_limit)
    bay.queue().send_many(Message(b"%d" % n) for n in range(10))
    bay.bay.close()
    refused = 0
    for nth in range(1, 5):
        bay.disk.fail("free_bytes", nth, errno.EIO)
        try:
            bay.open_again()
        except StoreFailed as failure:
            assert "could not be opened" in str(failure)
            refused += 1
        else:
            assert bay.queue().depth == 10
            bay.bay.close()
        bay.disk.cure()
    assert refused


@pytest.mark.parametrize("part", ["make_areas", "make_core", "make_background_layer"])
def test_an_open_that_fails_above_the_store_leaves_no_descriptor_and_loses_nothing(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with forebay.open(tmp_path, background=False) as bay:
        bay.queue("orders").send(b"kept")

    def fail(*_: object, **__: object) -> NoReturn:
        raise MemoryError

    before = set(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(engine_module, part, fail)
        with pytest.raises(MemoryError):
            forebay.open(tmp_path, background=False)
    assert set(os.listdir("/proc/self/fd")) == before
    with forebay.open(tmp_path, background=False) as bay:
        assert bay.queue("orders").depth == 1
