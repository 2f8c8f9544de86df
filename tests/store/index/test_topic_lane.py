"""TopicLane: what leaves a topic's lane is pending for none of its subscriptions."""

from __future__ import annotations

import pytest
from message_stores import OpenStore
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay.store.format.state_record import TOPIC


@pytest.mark.parametrize("is_single", [True, False])
def test_a_message_that_leaves_the_topic_leaves_each_subscription(is_single: bool) -> None:
    opened = OpenStore(SimulatedDisk(), SimulatedMetadataStore())
    store = opened.store
    with opened.lock:
        number = store.destination_writer.create("prices", TOPIC).number
        lane = store.index.ensure_lane(number, 4)
        audits = [store.subscription_writer.subscribe(number, f"audit {n}", None) for n in range(2)]
        for _ in range(3):
            store.message_store.add(lane, 0, b"", b"price")
        if is_single:
            assert store.message_store.acknowledge_one(lane, 1) == 1
        else:
            assert store.message_store.acknowledge(lane, 1, 1) == 1
        for audit in audits:
            subscribed = audit.lanes[4]
            assert subscribed is not None
            assert subscribed.depth[0] == 2 and not subscribed.is_pending(1)
        assert lane.depth[0] == 2
