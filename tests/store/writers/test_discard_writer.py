"""DiscardWriter: messages that no subscription receives get sequences, and are not stored."""

from __future__ import annotations

import pytest
from message_stores import OpenStore
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore
from writing import killed, refused_by_a_full_disk

from forebay.store.format.identity import identity
from forebay.store.format.record import ACK_BYTES
from forebay.store.format.state_record import TOPIC
from forebay.store.index.deduplication import Deduplication
from forebay.store.index.destination_lane import DestinationLane
from forebay.store.writers.discard_writer import DiscardWriter


def windows() -> Deduplication:
    return Deduplication(window_of=lambda name: 10, limit_bytes=1 << 20)


@pytest.fixture
def opened() -> OpenStore:
    return OpenStore(SimulatedDisk(), SimulatedMetadataStore(), duplicates=windows())


@pytest.fixture
def lane(opened: OpenStore) -> DestinationLane:
    """A lane of a topic without subscriptions."""
    with opened.lock:
        number = opened.store.destination_writer.create("prices", TOPIC).number
        return opened.store.index.ensure_lane(number, 4)


@pytest.fixture
def writer(opened: OpenStore) -> DiscardWriter:
    return DiscardWriter(opened.store.journal, opened.store.duplicates)


def test_discarded_messages_take_sequences_one_record_and_no_place(
    opened: OpenStore, lane: DestinationLane, writer: DiscardWriter
) -> None:
    before = opened.store.journal.offset
    with opened.lock:
        assert [writer.discard(lane, messages, 100 * messages) for messages in (3, 1)] == [0, 3]
    assert (lane.next_sequence, lane.pending_messages) == (4, 0)
    assert opened.store.journal.offset == before + 2 * ACK_BYTES


def test_sequences_of_discarded_messages_are_not_given_again_after_a_kill(
    opened: OpenStore, lane: DestinationLane, writer: DiscardWriter
) -> None:
    with opened.lock:
        writer.discard(lane, 3, 300)
    assert dict(killed(opened).store.index.next_sequences())[lane.number] == 3


def test_discard_that_a_full_disk_refuses_takes_no_sequence(
    opened: OpenStore, lane: DestinationLane, writer: DiscardWriter
) -> None:
    with refused_by_a_full_disk(opened), opened.lock:
        writer.discard(lane, 3, 300)
    assert lane.next_sequence == 0


def test_id_of_a_discarded_message_counts_as_sent(
    opened: OpenStore, lane: DestinationLane, writer: DiscardWriter
) -> None:
    sent = identity(lane.owner_number, b"producer", b"id 1")
    with opened.lock:
        writer.discard(lane, 1, 100, [sent])
    assert opened.store.duplicates.has_seen(sent)
