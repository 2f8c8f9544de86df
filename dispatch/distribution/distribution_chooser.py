"""DistributionChooser: choose and replace the rule of every destination. It is the one place that does.

A destination begins with the ordinary rule, or with turns if its one consumer takes from many topics (`initial`). The
first message with a group, or the first consumer with a priority, replaces the ordinary rule by a GroupedDistribution
(`begin_assigning`). No policy chooses a rule.
"""

from __future__ import annotations

from ...cache.accounting.overdraft import Overdraft
from ...store.errors import StateError
from ..core.areas.dispatch_area import DispatchArea
from ..core.areas.load_requests import LoadRequests
from ..core.areas.target_area import TargetArea
from ..core.memory.group_memory import GroupMemory
from ..core.model import ConsumedDestination, Distribution
from ..core.selector_groups.distribution_roles import AbstractDistributionChooser
from .grouped import GroupedDistribution
from .ordinary import OrdinaryDistribution
from .topic_turns import TopicTurns


class DistributionChooser(AbstractDistributionChooser[ConsumedDestination, Distribution]):
    """The rules of all destinations of a store. The state lock guards it; every method requires it held."""

    def __init__(
        self,
        target_area: TargetArea,
        dispatch_area: DispatchArea,
        loads: LoadRequests,
        consumer_memory: Overdraft,
        group_memory: GroupMemory,
    ) -> None:
        """Make the one DistributionChooser of a store.

        consumer_memory: pays for the lists of consumers to which messages are assigned.
        group_memory: pays for message groups.
        """
        self._target_area = target_area
        self._dispatch_area = dispatch_area
        self._loads = loads
        self._consumer_memory = consumer_memory
        self._group_memory = group_memory
        # One rule for all destinations without groups and priorities.
        self._ordinary = OrdinaryDistribution(target_area, dispatch_area, loads)

    def initial(self, destination: ConsumedDestination) -> Distribution:
        """Return TopicTurns for what spans several destinations, and the ordinary rule for all others."""
        if not destination.spans_others:
            return self._ordinary
        return TopicTurns(self._target_area, self._dispatch_area, self._loads, destination)

    def require_assignable(self, destination: ConsumedDestination) -> None:
        """Raise StateError if the rule neither honours groups and priorities nor is the ordinary one."""
        distribution = destination.distribution
        if not (distribution.honours_groups or distribution.is_ordinary):
            rule = type(distribution).__name__
            raise StateError(
                f"{destination.name!r} hands out by {rule}, which knows neither groups nor priorities: send there"
                " without a group and subscribe without a priority"
            )

    def begin_assigning(self, destination: ConsumedDestination) -> None:
        """Assign messages of a destination to its consumers by groups and priorities from now on.

        Only the ordinary rule may be replaced, because the knowledge that another rule has of its queue would be lost.
        """
        if not destination.distribution.honours_groups:
            self.require_assignable(destination)
            assigner = GroupedDistribution(
                destination,
                self._target_area,
                self._dispatch_area,
                self._loads,
                self._consumer_memory,
                self._group_memory,
            )
            destination.distribution = assigner
            assigner.take_over()
