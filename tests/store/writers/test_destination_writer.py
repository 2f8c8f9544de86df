"""DestinationWriter: queues and topics begin, change and end with one record each."""

from __future__ import annotations

from message_stores import OpenStore
from writing import killed, refused_by_a_full_disk

from forebay.store.format.state_record import QUEUE, TOPIC, Destination


def created(opened: OpenStore, name: str, kind: int = QUEUE, *, is_temporary: bool = False) -> Destination:
    with opened.lock:
        return opened.store.destination_writer.create(name, kind, is_temporary=is_temporary)


def destinations(opened: OpenStore) -> list[Destination]:
    return list(opened.store.destination_table.values())


def test_destinations_are_numbered_in_turn_and_survive_a_kill(opened: OpenStore) -> None:
    made = [created(opened, "orders"), created(opened, "prices", TOPIC), created(opened, "mine", is_temporary=True)]
    assert [destination.number for destination in made] == [1, 2, 3]
    assert destinations(killed(opened)) == destinations(opened) == made


def test_destination_that_a_full_disk_refuses_is_not_there_and_takes_no_number(opened: OpenStore) -> None:
    with refused_by_a_full_disk(opened):
        created(opened, "orders")
    assert destinations(opened) == destinations(killed(opened)) == []
    assert created(opened, "late").number == 1


def test_deleted_queue_takes_its_messages_along_and_its_number_is_not_given_again(opened: OpenStore) -> None:
    lane = opened.lane("orders")
    opened.add(b"gone", b"too", lane=lane)
    with opened.lock:
        opened.store.destination_writer.delete(lane.owner_number)
    again = killed(opened)
    for store in (opened, again):
        assert destinations(store) == [] and store.store.index.find_lane(lane.number) is None
    assert created(again, "orders").number == lane.owner_number + 1
    assert again.pending() == []


def test_delete_that_a_full_disk_refuses_leaves_everything(opened: OpenStore) -> None:
    lane = opened.lane("orders")
    opened.add(b"kept", lane=lane)
    with refused_by_a_full_disk(opened), opened.lock:
        opened.store.destination_writer.delete(lane.owner_number)
    assert opened.bodies(lane) == killed(opened).bodies() == [b"kept"]


def test_deleted_topic_takes_its_subscriptions_along(opened: OpenStore) -> None:
    topic = created(opened, "prices", TOPIC)
    with opened.lock:
        opened.store.subscription_writer.subscribe(topic.number, "audit", None)
        opened.store.destination_writer.delete(topic.number)
    assert opened.store.subscriptions.numbers() == killed(opened).store.subscriptions.numbers() == set()


def test_message_groups_are_noted_with_one_record_for_ever(opened: OpenStore) -> None:
    number, journal = created(opened, "orders").number, opened.store.journal
    before = journal.next_log_sequence
    with opened.lock:
        for _ in range(3):
            opened.store.destination_writer.note_message_groups(number)
    assert journal.next_log_sequence == before + 1
    assert [destination.has_message_groups for destination in destinations(killed(opened))] == [True]
