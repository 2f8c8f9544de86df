"""A disk that fails while a store opens: StoreFailed, and the next try finds what was there."""

from __future__ import annotations

import errno

import pytest
from simulated_bay import SimulatedBay

from forebay import Message, StoreFailed


@pytest.mark.parametrize("store_limit", [None, "50%"])
def test_disk_that_cannot_tell_its_free_room_refuses_the_open_and_loses_nothing(store_limit: str | None) -> None:
    bay = SimulatedBay(store_limit=store_limit)
    bay.queue().send_many(Message(b"%d" % n) for n in range(10))
    bay.bay.close()
    refused = 0
    for nth in range(1, 5):
        bay.disk.fail("free_bytes", nth, errno.EIO)
        try:
            bay._open()
        except StoreFailed as failure:
            assert "could not be opened" in str(failure)
            refused += 1
        else:
            assert bay.queue().depth == 10
            bay.bay.close()
        bay.disk.cure()
    assert refused
