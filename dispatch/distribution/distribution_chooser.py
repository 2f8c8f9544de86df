"""DistributionChooser: choose the distribution of every destination, and replace it. No other code does.

A new destination gets the OrdinaryDistribution, or a PatternDistribution if its one consumer takes from many topics
(`initial`). The first message with a group, or the first consumer with a priority, replaces an OrdinaryDistribution by
an AssigningDistribution (`begin_assigning`). No policy chooses a distribution. An AssigningDistribution follows the
policy `group_rebalance`, which is handed to it here.
"""

from __future__ import annotations

from ...store.errors import StateError
from ..config.policies import Policies
from ..core.model.destination import CoreDestination, Distribution
from ..core.model.distribution_roles import AbstractDistributionChooser
from .assigning import AssigningDistribution
from .distribution_parts import DistributionParts
from .ordinary import OrdinaryDistribution
from .pattern import PatternDistribution


class DistributionChooser(AbstractDistributionChooser[CoreDestination, Distribution]):
    """The distributions of all destinations of a store. The state lock guards it; every method requires it held."""

    def __init__(self, policies: Policies, parts: DistributionParts) -> None:
        """policies: an AssigningDistribution follows `group_rebalance`."""
        self._policies = policies
        self._parts = parts
        # Serves all destinations without groups and priorities.
        self._ordinary = OrdinaryDistribution(parts)

    def initial(self, destination: CoreDestination) -> Distribution:
        """Return a PatternDistribution for a destination that spans others, and the ordinary one for all others."""
        if not destination.spans_others:
            return self._ordinary
        return PatternDistribution(self._parts, destination)

    def require_assignable(self, destination: CoreDestination) -> None:
        """Raise StateError if the distribution neither honours groups and priorities nor is the ordinary one."""
        distribution = destination.distribution
        if not (distribution.honours_groups_and_priorities or distribution.is_ordinary):
            kind = type(distribution).__name__
            raise StateError(
                f"{destination.name!r} hands out by {kind}, which knows neither groups nor priorities: send there"
                " without a group and subscribe without a priority"
            )

    def begin_assigning(self, destination: CoreDestination) -> None:
        """Assign messages of a destination to its consumers by groups and priorities from now on.

        Only the ordinary distribution may be replaced. Another one knows something of its queue that would be lost.
        """
        if not destination.distribution.honours_groups_and_priorities:
            self.require_assignable(destination)
            rebalances = destination.keeps_message_groups and self._policies.of(destination.name).group_rebalance
            assigner = AssigningDistribution(destination, self._parts, rebalances=rebalances)
            self._replace_ordinary(destination, assigner)

    def _replace_ordinary(self, destination: CoreDestination, distribution: Distribution) -> None:
        """Give a destination another distribution. Its consumers take by it, and arrivals leave the fast path."""
        destination.distribution = distribution
        distribution.adopt_consumers(destination)
        for consumer in list(destination.consumers()):
            consumer.follow_destination()
        self._parts.list_registry.update_sole_lists(destination)
