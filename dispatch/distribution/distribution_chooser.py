"""DistributionChooser: choose and replace the distribution of every destination. It is the one place that does.

A destination begins with the ordinary one, or with turns if its one consumer takes from many topics (`initial`). The
first message with a group, or the first consumer with a priority, replaces the ordinary one by an AssigningDistribution
(`begin_assigning`). No policy chooses one; the one that follows a policy, `group_rebalance`, is told of it here.
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
        """policies: those that a distribution may follow."""
        self._policies = policies
        self._parts = parts
        # One for all destinations without groups and priorities.
        self._ordinary = OrdinaryDistribution(parts)

    def initial(self, destination: CoreDestination) -> Distribution:
        """Return PatternDistribution for what spans several destinations, and the ordinary one for all others."""
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

        Only the ordinary one may be replaced, because the knowledge that another one has of its queue would be lost.
        """
        if not destination.distribution.honours_groups_and_priorities:
            self.require_assignable(destination)
            rebalances = destination.keeps_message_groups and self._policies.of(destination.name).group_rebalance
            assigner = AssigningDistribution(destination, self._parts, rebalances=rebalances)
            self._replace_ordinary(destination, assigner)

    def _replace_ordinary(self, destination: CoreDestination, distribution: Distribution) -> None:
        """Let another distribution decide from now on. Consumers take by it, and no arrival passes it by."""
        destination.distribution = distribution
        distribution.adopt_consumers(destination)
        for consumer in list(destination.consumers()):
            consumer.follow_destination()
        self._parts.target_lists.update_sole_lists(destination)
