"""ListObserver: what a TargetArea tells about its lists."""

from __future__ import annotations

from ....cache.curve import Curve
from ..model import TargetList


class ListObserver:
    """No-op observer of target-list events, used where no statistics are kept. Every method requires the state lock."""

    def begin(self, target: TargetList) -> None:
        """Observe a list that came into being."""

    def sample(self, target: TargetList) -> None:
        """Observe a list that reached its `sample_at_bytes`, or each list once a second."""

    def shares_changed(self) -> None:
        """Note that there is another memory limit."""

    def measured(self) -> None:
        """Note that a second has passed, and that the rates of all lists are new."""

    def end(self, target: TargetList) -> None:
        """Observe a list that is about to go."""

    def curve(self) -> Curve:
        """Return the hit ratio by memory limit, as far as it is known."""
        return Curve()

    def recent_curve(self) -> Curve:
        """Return the same as of the last second, which costs nothing for each list."""
        return Curve()

    @property
    def charge_bytes(self) -> int:
        """Return what the curve is charged, computed anew. AssertionError where it follows what is not there."""
        return 0
