"""An interruption inside the product of large numbers is an exception in both builds, and no end of the process."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable
from types import FrameType

import pytest

from forebay.store.index.fingerprint import BlockSurvey
from forebay.store.metadata.checksum import survey

ATTEMPTS = 20
CALLS = 500
"""Longer than the timer of an attempt, even where this process waits for a core."""
ROWS = [(17 << 4 | 4, block, 0xFFFFFFFF - block, 1_700_000_000_000, 1_700_000_000_001) for block in range(2_000)]


class Interruption(Exception):
    pass


def fingerprint() -> None:
    surveyed = BlockSurvey(frozenset(("n",)), 1)
    for index in range(512):
        surveyed.add(index, {"n": f"value {index}"})
    surveyed.pack()


@pytest.mark.parametrize("call", [lambda: survey(ROWS), fingerprint], ids=["checksum", "fingerprint"])
def test_an_interruption_inside_a_sum_of_large_products_comes_out_of_it(call: Callable[[], object]) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interruption

    before = signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    # A collection here would run finalizers of what other tests left, and one that is interrupted only warns.
    gc.collect()
    gc.disable()
    try:
        for _ in range(ATTEMPTS):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002)
                for _ in range(CALLS):  # not for ever: Python drops what is raised inside a finalizer
                    call()
            except Interruption:
                interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    assert interrupted >= ATTEMPTS // 2
