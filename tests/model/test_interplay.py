"""The combinations of interplay.py: nothing confirmed is lost, and nothing settled comes back."""

from __future__ import annotations

import pytest
from crashing import FIRST_SEED, SEEDS_APART, SYNC_MODES, run_seeds
from interplay import Interplay
from sampling import sampled
from simulated_bay import SimulatedBay

from forebay.dispatch.config.settings import SyncMode

STATES = 300
SHARES = 2
SOAK_STATES = 30_000


@pytest.mark.parametrize("share", sampled(range(SHARES), 1))
@pytest.mark.parametrize("sync", SYNC_MODES)
def test_nothing_confirmed_is_lost_and_nothing_settled_comes_back_whatever_was_combined(
    sync: SyncMode, share: int
) -> None:
    run_seeds(lambda seed: Interplay(seed, sync), FIRST_SEED + share * SEEDS_APART // SHARES, states=STATES // SHARES)


def test_prepared_transactions_come_in_the_order_in_which_they_were_begun_without_the_index_too() -> None:
    """Seed 207: one without slices was told of by its prepare record alone."""
    store = SimulatedBay()
    first, second = store.bay.transaction(), store.bay.transaction()
    store.queue().send(b"in", transaction=second)
    store.queue("prices").send(bytes(300_000), transaction=second)  # more than waits in RAM
    second.prepare(b"second")
    first.prepare(b"first")
    for is_index_lost in (False, True):
        store.crash(is_index_lost=is_index_lost)
        assert [transaction.xid for transaction in store.bay.prepared()] == [b"first", b"second"]


@pytest.mark.soak
@pytest.mark.parametrize("sync", SYNC_MODES)
def test_soak_of_everything_at_once(sync: SyncMode) -> None:
    """FOREBAY_SEED draws others than the last time."""
    run_seeds(lambda seed: Interplay(seed, sync), FIRST_SEED + SEEDS_APART, states=SOAK_STATES)
