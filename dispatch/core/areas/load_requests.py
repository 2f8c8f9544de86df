"""LoadRequests: the lists that want a load from the eager loader.

A list asks for a load when it runs low and there is something to load for it. The loader serves all lists that ask,
except those that are left to their consumers; consumer_trials.py says which these are.
"""

from __future__ import annotations

from collections.abc import Callable

from ..model.destination import TargetList
from .consumer_trials import ConsumerTrials


class LoadRequests:
    """The lists that run low, except those whose consumers load for themselves.

    Every method requires the lock.
    """

    def __init__(self, wake_loader: Callable[[], None], trials: ConsumerTrials) -> None:
        """Make it without lists. wake_loader: wakes the loader's thread."""
        self.wake_loader = wake_loader
        self.trials = trials
        # The dict of `trials`. It is kept here too, because a take that leaves a list low reads it.
        self.left_alone = trials.left_alone
        # Lists below their low watermark for which there is something to load.
        self.running_low: dict[TargetList, None] = {}

    def request(self, target: TargetList) -> None:
        """Tell the loader that a list runs low, unless the list is left to its consumer."""
        if target not in self.running_low and target.has_supply and target not in self.left_alone:
            self.running_low[target] = None
            self.wake_loader()

    def withdraw(self, target: TargetList) -> None:
        """Take back the request of a list, if there is one: it needs no load, or can have none for now."""
        self.running_low.pop(target, None)

    def forget(self, target: TargetList) -> None:
        """Forget a list that has ended."""
        self.withdraw(target)
        self.trials.forget(target)

    # ------------------------------------------------------------------ the consumer's thread

    def runs_low(self, target: TargetList) -> None:
        """Note that a take left the list below its low watermark."""
        trial = self.left_alone.get(target)
        if trial is None:
            self.request(target)
        elif target.taken_bytes >= trial.judge_at and not self.trials.judge(target, trial):
            self._feed_again(target)

    def missed(self, target: TargetList) -> None:
        """Note that a take found the list empty, and will load for it or wait for the loader."""
        if target not in self.left_alone and self.trials.never_fills(target):
            self.leave(target)

    # ------------------------------------------------------------------ the loader's thread

    def leave_if_never_full(self, target: TargetList) -> bool:
        """Leave a list to its consumer if it never fills, instead of a load for it; return whether it was left."""
        if target.direct_bytes * 2 < target.low_watermark_bytes or not self.trials.never_fills(target):
            return False  # nearly empty: the consumer would have to load before the trial can judge it
        self.leave(target)
        return True

    def poll(self) -> None:
        """Feed lists again from which nothing was taken since the last check, if a check is due."""
        for target in self.trials.poll():
            self._feed_again(target)

    # ------------------------------------------------------------------ both

    def leave(self, target: TargetList) -> None:
        """Leave a list to its consumer from now on, on trial."""
        self.trials.begin(target)
        self.withdraw(target)
        self.wake_loader()  # from now on the loader polls this list

    def _feed_again(self, target: TargetList) -> None:
        """Have the loader feed a list again that was left to its consumer."""
        self.trials.end(target)
        self.request(target)
