"""When assigning begins, a queue's distribution is replaced, or stays because it honours groups, or refuses."""

from __future__ import annotations

import pytest
from compiled import interpreted
from simulated_bay import SimulatedBay

from forebay import StateError
from forebay.dispatch.core.memory.message_group_memory import MessageGroupMemory
from forebay.dispatch.distribution.assigning import AssigningDistribution
from forebay.dispatch.distribution.distribution_parts import DistributionParts
from forebay.dispatch.distribution.ordinary import OrdinaryDistribution
from forebay.dispatch.distribution.pattern import PatternDistribution


def stubborn(bay: SimulatedBay) -> OrdinaryDistribution:
    """Return a rule that neither honours groups nor is the ordinary one."""

    class Stubborn(OrdinaryDistribution):
        is_ordinary = False

    return Stubborn(
        DistributionParts(
            target_area=bay.target_area,
            list_registry=bay.list_registry,
            dispatch_area=bay.dispatch_area,
            loads=bay.loads,
            consumer_memory=bay.consumer_memory,
            message_group_memory=MessageGroupMemory(bay.budget.holders["groups"]),
        )
    )


def test_an_ordinary_queue_is_assigned_from_then_on_and_only_once() -> None:
    bay = SimulatedBay()
    area = bay.queue().destination
    with bay.lock:
        assert area.distribution.is_ordinary
        bay.distribution_chooser.begin_assigning(area)
        assigner = area.distribution
        assert isinstance(assigner, AssigningDistribution)
        bay.distribution_chooser.begin_assigning(area)
    assert area.distribution is assigner


def test_a_priority_leaves_the_rule_of_a_pattern_as_it_is() -> None:
    bay = SimulatedBay()
    bay.bay.topic("prices.a")
    consumer = bay.bay.topic("prices.>").subscribe(priority=5)
    assert type(consumer.destination.distribution) is PatternDistribution
    bay.bay.topic("prices.a").send(b"1")
    assert [delivery.body for delivery in consumer.take()] == [b"1"]


@interpreted("nobody inherits from a compiled class")
def test_a_rule_that_honours_no_groups_is_not_replaced_in_silence() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    with bay.lock:
        rule = queue.destination.distribution = stubborn(bay)
    with pytest.raises(StateError, match="'orders' hands out by Stubborn, which knows neither groups nor priorities"):
        queue.subscribe(priority=5)
    assert queue.destination.distribution is rule


@interpreted("nobody inherits from a compiled class")
def test_a_store_goes_on_after_a_rule_has_refused_groups() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    with bay.lock:
        queue.destination.distribution = stubborn(bay)
    with pytest.raises(StateError):
        queue.send(b"1", group="a")
    assert not queue.destination.has_message_groups
    queue.send(b"2")
    assert [delivery.body for delivery in queue.subscribe().take()] == [b"2"]
