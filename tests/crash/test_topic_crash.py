"""Power cuts and kills at every call that changes the disk, with topics.

For each durable subscription: nothing confirmed is lost, nothing acknowledged
comes back, nothing appears that was sent before it; and it exists, or not, as
was confirmed. The model is that of everything at once, see interplay.py.
"""

from __future__ import annotations

import pytest
from crashing import FIRST_SEED, SEEDS_APART, run_seeds
from interplay import Interplay
from sampling import sampled

from forebay.dispatch.config.settings import SyncMode

STATES = 3_000
KILLS = 1_000
SOAK_STATES = 200_000
SHARES = 8
SHORT_SHARES = 4


class Subscriptions(Interplay):
    kill_share = 0.05
    cuts_power_too = looks_once = True
    going_on_share = 0.03
    steps = (10, 80)
    later_steps = (1, 20)
    weights = {
        "publish": (2, 8),
        "publish_many": (0, 2, 4),
        "subscribe": (1, 3),
        "unsubscribe": (0, 1, 2),
        "read": (3, 8),
        "ack_read": (3, 8),
        "leave": (0, 1),
        "checkpoint": (0, 1, 2),
        "cleanup": (0, 1, 4),
        "reopen": (0, 0, 1),
        "step": (0, 1, 2),
    }
    pending_max = 300

    def __init__(self, seed: int, sync: SyncMode = "always") -> None:
        super().__init__(seed, sync)
        self.call_share = 1.0


class KilledSubscriptions(Subscriptions):
    """The process is killed, and the power stays."""

    kill_share = 0.5
    index_lost_share = 0.3
    cuts_power = False


@pytest.mark.parametrize("share", sampled(range(SHARES), SHORT_SHARES))
def test_power_cut_at_any_call_leaves_each_subscription_whole(share: int) -> None:
    run_seeds(Subscriptions, FIRST_SEED + share * SEEDS_APART, power_cuts=STATES // SHARES)


@pytest.mark.parametrize("share", sampled(range(2), 1))
@pytest.mark.parametrize("sync", ["always", "never"])
def test_kill_at_any_call_leaves_each_subscription_whole(sync: SyncMode, share: int) -> None:
    run_seeds(lambda seed: KilledSubscriptions(seed, sync), FIRST_SEED + share * SEEDS_APART, kills=KILLS // 2)


@pytest.mark.soak
@pytest.mark.parametrize("share", range(SHARES))
def test_soak_of_power_cuts_with_topics(share: int) -> None:
    run_seeds(Subscriptions, FIRST_SEED + (SHARES + share) * SEEDS_APART, power_cuts=SOAK_STATES // SHARES)
