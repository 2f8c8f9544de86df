"""LedgerAudit: compare the budget's ledger with the live objects, by walking all of them. Only tests call it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from ...cache.accounting import holder_names
from ...cache.accounting.budget import Budget
from ..admin.browse import Browsers
from ..core.areas.list_registry import ListRegistry
from ..core.destinations.destination_state import DestinationState
from ..core.destinations.overhead import FAN_OUT_BYTES, OPEN_SUBSCRIPTION_BYTES
from ..core.lists.consumer_memory import OWN_SELECTOR_GROUP_BYTES, selector_group_charge
from ..core.memory.memory_owners import MemoryOwners
from ..core.monitor import Monitor
from .open_destinations import OpenDestinations


class Audited(Protocol):
    """An owner that charges the budget and can recompute its charges."""

    def audit(self) -> Mapping[str, int]:
        """Return what the owner should be charged, by holder, from its live objects. O(objects). Requires: the lock."""


class LedgerAudit:
    """Adds up the recomputed charges of all owners, and compares the sums with what the holders hold."""

    def __init__(self, monitor: Monitor, budget: Budget, browsers: Browsers, audited: Iterable[Audited]) -> None:
        """Make the audit. audited: all owners; several may be charged to the same holder."""
        self._monitor = monitor
        self._budget = budget
        self._browsers = browsers
        self._audited = tuple(audited)

    def run(self) -> None:
        """Recompute every charge from the live objects; AssertionError if the ledger disagrees. O(everything)."""
        with self._monitor.lock:
            self._browsers.release_given_back()
            self._budget._check()
            sums: Counter[str] = Counter()
            for each in self._audited:
                sums.update(each.audit())
            for name, found in sums.items():
                held = self._budget.held_by(name)
                assert found == held, f"{name} holds {found} bytes, the ledger says {held}"


class DestinationAudit:
    """The audit of queues, topics and subscriptions, their consumers and their message groups."""

    def __init__(self, opened: OpenDestinations, memory: MemoryOwners, list_registry: ListRegistry) -> None:
        self._opened = opened
        self._memory = memory
        self._list_registry = list_registry

    def audit(self) -> Mapping[str, int]:
        """Return the charges for destinations, consumers and groups. Requires: the lock.

        Lanes and subscriptions on disk are not included, because the store says what they are charged.
        """
        self._check_owners()
        return {
            holder_names.DESTINATIONS: self._existing_charge(),
            holder_names.CONSUMERS: self._consumers_charge(),
            holder_names.GROUPS: self._message_groups_charge(),
        }

    def _check_owners(self) -> None:
        """AssertionError if nobody can end a subscription or a lane of non-persistent messages. O(lanes)."""
        topics = self._opened.topics()
        assert all(subscription.selector_groups for topic in topics for subscription in topic.online)
        subscriptions = [subscription for topic in topics for subscription in topic.open_subscriptions()]
        opened: list[DestinationState] = [*self._opened.queues(), *subscriptions]
        lanes = {lane.pending_lane.number for each in opened for lane in each.non_persistent_lanes if lane is not None}
        assert lanes == self._memory.overflow.lanes.keys()

    def _existing_charge(self) -> int:
        """Return what all destinations and subscriptions should be charged. O(destinations + subscriptions)."""
        topics = self._opened.topics()
        subscriptions = [subscription for topic in topics for subscription in topic.open_subscriptions()]
        opened: list[DestinationState] = [*self._opened.queues_and_topics(), *subscriptions]
        return (
            self._opened.count_destinations().charge_bytes
            + self._memory.destination_memory.release_ended()
            + self._opened.idle_charge
            + sum(lane.charged_bytes for each in opened for lane in each.all_lanes())
            + OPEN_SUBSCRIPTION_BYTES * len(subscriptions)
            + FAN_OUT_BYTES * sum(len(topic.fan_outs) for topic in topics)
            - self._memory.destination_memory.owed_bytes
        )

    def _consumers_charge(self) -> int:
        """Return what consumers should be charged. O(consumers)."""
        consumers = list(self._opened.consumers())
        assigned = sum(consumer.selector_group is not consumer.selector_group.common for consumer in consumers)
        selector_groups = {consumer.selector_group.common for consumer in consumers}
        listless = sum(not selector_group.lists for selector_group in selector_groups)
        assert self._list_registry.listless_selector_groups == listless
        return (
            sum(consumer.charge_bytes for consumer in consumers)
            + sum(selector_group_charge(selector_group.selector) for selector_group in selector_groups)
            + OWN_SELECTOR_GROUP_BYTES * assigned
            + self._list_registry.charge_bytes
            - self._memory.consumer_memory.owed_bytes
        )

    def _message_groups_charge(self) -> int:
        """Return what message groups should be charged. O(queues)."""
        groups = [queue.distribution.audit() for queue in self._opened.queues()]
        assert self._memory.message_group_memory.halted_bytes == sum(halted_bytes for _, halted_bytes in groups)
        return sum(held_bytes for held_bytes, _ in groups) - self._memory.message_group_memory.owed_bytes
