"""ListObserver: what a TargetArea reports about its lists."""

from __future__ import annotations

from ....cache.sharing.curve import Curve
from ..model import TargetList


class ListObserver:
    """An observer of lists that does nothing, for stores that keep no statistics.

    Every method requires the state lock.
    """

    def begin(self, target: TargetList) -> None:
        """Observe a new list."""

    def sample(self, target: TargetList) -> None:
        """Observe a list that has reached its `sample_at_bytes`, and each list once a second."""

    def shares_changed(self) -> None:
        """Observe a change of the memory limit."""

    def measured(self) -> None:
        """Observe that a second has passed and that the rates of all lists are new."""

    def end(self, target: TargetList) -> None:
        """Observe a list that is about to end."""

    def curve(self) -> Curve:
        """Return the hit ratio by memory limit, as far as it is known."""
        return Curve()

    def recent_curve(self) -> Curve:
        """Return the hit ratio by memory limit over the last second. This costs nothing for each list."""
        return Curve()

    @property
    def charge_bytes(self) -> int:
        """Return what the curve should be charged, computed anew.

        AssertionError if it follows a list that has ended.
        """
        return 0
