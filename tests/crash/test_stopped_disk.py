"""A file system that stops by itself under a store: the sync that is under way may report success for what is lost."""

from __future__ import annotations

from random import Random

import pytest
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut

from forebay import StoreFailed

SYNCS = 40
SENDS = 200
BODY_BYTES = 3_000
"""The size of a body, with which data logs of 64 KiB roll."""


def body_of(number: int) -> bytes:
    return b"%d" % number + bytes(BODY_BYTES)


@pytest.mark.parametrize("mode", PowerCut)
def test_what_was_confirmed_before_the_disk_stopped_is_there_and_one_call_at_most_is_confirmed_after(
    mode: PowerCut,
) -> None:
    """The next open takes the bytes that this call lost for a torn tail, not for damage."""
    for nth in range(1, SYNCS):
        bay = SimulatedBay(seed=nth, sync="always", max_file_length="64KiB")
        queue = bay.queue()
        last = bay.disk.calls["sync"] + nth
        bay.disk.stop_in_sync(nth)
        confirmed = confirmed_before = 0
        with pytest.raises(StoreFailed):
            for number in range(SENDS):
                queue.send(body_of(number))
                confirmed = number + 1
                if bay.disk.calls["sync"] < last:
                    confirmed_before = confirmed
        assert confirmed - confirmed_before <= 1
        bay.power_cut(Random(nth), mode)
        found = [message.body for message in bay.queue().browse()]
        assert found == [body_of(number) for number in range(len(found))]
        assert len(found) >= confirmed_before, f"the disk stopped in sync {nth}"
        assert not bay.bay.recovery.quarantined
