"""Explanations of consumers and queues: each staged situation has its one true cause, and what a take does agrees."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from compiled import interpreted
from inside import explain, queue_of
from sampling import sampled
from simulated_bay import SimulatedBay

from forebay import Closed, Consumer, DestinationPolicy, Explanation, Message, Queue, SettingsError, StoreFull
from forebay.dispatch.consumer.settlements import held_by
from forebay.dispatch.core.lists.load import Load

KIB, MIB = 1024, 1024 * 1024
Said = list[tuple[str, str, int]]
"""(reason, holder, messages) of each cause."""
Staged = tuple[Queue | Consumer, Said, str]
"""What is asked about, its causes, and a part of the sentence."""


def said(explanation: Explanation) -> Said:
    return [(cause.reason, cause.holder, cause.messages) for cause in explanation.causes]


def send(bay: SimulatedBay, messages: int, name: str = "orders", **fields: Any) -> None:
    for number in range(messages):
        bay.queue(name).send(b"%05d" % number, **fields)


# A consumer.


def an_empty_queue() -> Staged:
    bay = SimulatedBay()
    send(bay, 1)
    consumer = bay.queue().subscribe()
    consumer.ack(consumer.take())
    return consumer, [("empty", "0:orders", 0)], "because nothing is pending there"


def prefetch_used_up() -> Staged:
    bay = SimulatedBay()
    send(bay, 5)
    consumer = bay.queue().subscribe(prefetch=2)
    consumer.take(5)
    return consumer, [("prefetch", "this consumer", 2)], "it holds 2 messages, as many as its prefetch admits"


def what_a_prepared_transaction_acknowledged() -> Staged:
    bay = SimulatedBay()
    send(bay, 3)
    consumer = bay.queue().subscribe()
    transaction = bay.bay.transaction()
    consumer.ack(consumer.take(5), transaction=transaction)
    transaction.prepare(b"branch 7")
    holder = "b'branch 7' (prepared)"
    return bay.queue(), [("transaction", holder, 3)], f"3 messages are acknowledged in transaction {holder}"


def what_an_open_transaction_acknowledged_that_is_not_persistent() -> Staged:
    bay = SimulatedBay()
    send(bay, 3, persistent=False)
    consumer = bay.queue().subscribe()
    transaction = bay.bay.transaction()
    consumer.ack(consumer.take(5), transaction=transaction)
    holder = f"{transaction.name} (open)"
    return bay.queue(), [("transaction", holder, 3)], f"3 messages are acknowledged in transaction {holder}"


def prefetch_used_up_by_an_open_transaction() -> Staged:
    bay = SimulatedBay()
    send(bay, 5)
    consumer = bay.queue().subscribe(prefetch=2)
    transaction = bay.bay.transaction()
    consumer.ack(consumer.take(5), transaction=transaction)
    number = transaction.name
    return consumer, [("transaction", f"{number} (open)", 2)], f"acknowledged in transaction {number}"


def a_selector_that_matches_nothing() -> Staged:
    bay = SimulatedBay()
    consumer = bay.queue().subscribe(selector="kg = 7")
    send(bay, 4, headers={"kg": 3})
    return consumer, [("selector", "0:orders", 4)], "its selector does not match 4 messages"


def a_selector_that_matches_nothing_of_a_backlog() -> Staged:
    bay = SimulatedBay()
    send(bay, 4, headers={"kg": 3})
    consumer = bay.queue().subscribe(selector="kg = 7")
    bay.bay.step()
    return consumer, [("selector", "0:orders", 4)], "its selector does not match 4 messages"


def a_selector_whose_messages_others_do_not_hold() -> Staged:
    bay = SimulatedBay()
    consumer = bay.queue().subscribe(selector="kg = 7")
    other = bay.queue().subscribe()
    send(bay, 4, headers={"kg": 3})
    other.take(2)
    return consumer, [("selector", "0:orders", 4)], "its selector does not match 4 messages"


def all_in_flight_with_another() -> Staged:
    bay = SimulatedBay()
    send(bay, 3)
    consumer, other = bay.queue().subscribe(), bay.queue().subscribe()
    other.take(5)
    return consumer, [("in_flight", "1 other consumer", 3)], "3 messages are in flight with 1 other consumer"


def all_in_flight_with_another_selector() -> Staged:
    bay = SimulatedBay()
    consumer, other = bay.queue().subscribe(selector="kg = 7"), bay.queue().subscribe()
    send(bay, 3, headers={"kg": 7})
    other.take(5)
    return consumer, [("in_flight", "1 other consumer", 3)], "3 messages are in flight with 1 other consumer"


def all_in_its_own_hands() -> Staged:
    bay = SimulatedBay()
    send(bay, 3)
    consumer = bay.queue().subscribe(prefetch=10)
    consumer.take(5)
    return consumer, [("in_flight", "this consumer", 3)], "3 messages are in flight with this consumer"


def parked_with_a_delay() -> Staged:
    bay = SimulatedBay()
    send(bay, 3)
    consumer = bay.queue().subscribe()
    consumer.nack(consumer.take(3), delay=5.0)
    return consumer, [("delayed", "nack with a delay", 3)], "3 messages are delayed"


def one_between_others_that_expired_before_they_are_due() -> Staged:
    bay = SimulatedBay()
    early = Message(b"x", delay=60.0, expires_in=1.0)
    bay.queue().send_many([early, Message(b"plain"), early])
    bay.clock.advance(2.0)
    causes = [("due_later", "due in 58 s at the earliest", 2), ("no_consumer", "0:orders", 1)]
    return bay.queue(), causes, "1 message waits for a consumer"


def acknowledged_in_a_prepared_transaction() -> Staged:
    bay = SimulatedBay()
    send(bay, 3)
    consumer = bay.queue().subscribe(prefetch=3)
    transaction = bay.bay.transaction()
    consumer.ack(consumer.take(3), transaction=transaction)
    transaction.prepare(b"branch")
    number = f"{transaction.xid!r} (prepared)"
    return consumer, [("transaction", number, 3)], f"3 messages are acknowledged in transaction {number}"


def acknowledged_in_a_transaction_that_survived() -> Staged:
    bay = SimulatedBay()
    send(bay, 3)
    consumer = bay.queue().subscribe()
    transaction = bay.bay.transaction()
    consumer.ack(consumer.take(3), transaction=transaction)
    transaction.prepare(b"branch")
    number = f"{transaction.xid!r} (prepared)"
    bay.reopen()
    return bay.queue().subscribe(), [("transaction", number, 3)], f"acknowledged in transaction {number}"


def memory_in_flight_used_up() -> Staged:
    bay = SimulatedBay(memory_limit="4MiB", max_file_length="1MiB")
    bay.queue("held").send_many(Message(bytes(100)) for _ in range(10_000))
    holder = bay.queue("held").subscribe(prefetch=0)
    send(bay, 5)
    consumer = bay.queue().subscribe()
    consumer.take(1)
    while holder.take(256):
        bay.bay.step()
    held = holder.in_flight
    return consumer, [("memory", "0:held", held), ("memory", "0:orders", 1)], "memory is used up, most of it by 0:held"


def the_loader_is_reading() -> Staged:
    bay = SimulatedBay()
    send(bay, 3)
    bay.reopen()
    consumer = bay.queue().subscribe()
    with bay.lock:
        load = bay.loader.begin(bay.lists()[0], is_needed=False)
    assert isinstance(load, Load)
    return consumer, [("loading", "0:orders", 3)], "must be read from disk first"


def nothing_is_loaded_yet() -> Staged:
    bay = SimulatedBay()
    send(bay, 3)
    bay.reopen()
    return bay.queue().subscribe(), [("loading", "0:orders", 3)], "must be read from disk first, up to 3"


def a_selector_that_has_not_looked_yet() -> Staged:
    bay = SimulatedBay()
    send(bay, 3, headers={"kg": 7})
    bay.reopen()
    return bay.queue().subscribe(selector="kg = 7"), [("loading", "0:orders", 3)], "must be read from disk"


def something_is_there() -> Staged:
    bay = SimulatedBay()
    consumer = bay.queue().subscribe()
    send(bay, 3)
    return consumer, [("ready", "0:orders", 3)], "Nothing keeps the consumer of 0:orders from 3 messages"


def a_paused_queue() -> Staged:
    bay = SimulatedBay()
    send(bay, 3)
    consumer = bay.queue().subscribe()
    bay.queue().pause()
    return consumer, [("paused", "0:orders", 3)], "the queue is paused"


def a_paused_queue_whose_messages_another_holds() -> Staged:
    bay = SimulatedBay()
    send(bay, 3)
    consumer, other = bay.queue().subscribe(), bay.queue().subscribe()
    other.take(3)
    bay.queue().pause()
    causes = [("in_flight", "1 other consumer", 3), ("paused", "0:orders", 0)]
    return consumer, causes, "3 messages are in flight with 1 other consumer and the queue is paused."


def an_empty_queue_that_is_paused() -> Staged:
    bay = SimulatedBay()
    bay.queue().pause()
    causes = [("empty", "0:orders", 0), ("paused", "0:orders", 0)]
    return bay.queue().subscribe(), causes, "nothing is pending there and the queue is paused."


def a_closed_consumer_of_a_paused_queue() -> Staged:
    bay = SimulatedBay()
    bay.queue().pause()
    consumer = bay.queue().subscribe()
    consumer.close()
    return consumer, [("closed", "0:orders", 0)], "it is closed."


def non_persistent_messages_by_arrival() -> Staged:
    bay = SimulatedBay()
    consumer = bay.queue().subscribe()
    send(bay, 1)
    send(bay, 2, persistent=False)
    return consumer, [("ready", "0:orders", 3)], "Nothing keeps the consumer of 0:orders from 3 messages"


def non_persistent_messages_in_tmp_storage() -> Staged:
    bay = SimulatedBay()
    send(bay, 3, persistent=False)
    bay.reclaim.make_room(bay.budget.limit_bytes, None)
    assert bay.overflow.statistics.messages == 3
    consumer = bay.queue().subscribe()
    return consumer, [("loading", "0:orders", 3)], "must be read from disk first"


def non_persistent_messages_in_flight() -> Staged:
    bay = SimulatedBay()
    send(bay, 3, persistent=False)
    consumer = bay.queue().subscribe()
    consumer.take(2)
    bay.queue().subscribe().take(2)
    causes = [("in_flight", "this consumer", 2), ("in_flight", "1 other consumer", 1)]
    return consumer, causes, "2 messages are in flight with this consumer and 1 message is in flight"


def a_draining_consumer() -> Staged:
    bay = SimulatedBay()
    consumer = bay.queue().subscribe()
    bay.queue().send(b"x")
    assert consumer.drain(timeout=0)
    return consumer, [("draining", "0:orders", 0)], "it drains: it takes nothing more and settles what it holds"


def a_closed_consumer() -> Staged:
    bay = SimulatedBay()
    send(bay, 3)
    consumer = bay.queue().subscribe()
    consumer.close()
    return consumer, [("closed", "0:orders", 0)], "it is closed"


def a_damaged_message() -> Staged:
    bay = damaged()
    consumer = bay.queue().subscribe()
    assert consumer.take() == []
    return consumer, [("unreadable", "0:orders", 1)], "1 message can't be read"


def a_subscription_that_has_read_everything() -> Staged:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    consumer = topic.subscribe(durable="audit")
    topic.send(b"1.20")
    consumer.ack(consumer.take())
    return consumer, [("empty", "1:prices/audit", 0)], "The consumer of 1:prices/audit gets nothing"


def a_subscription_with_everything_in_flight() -> Staged:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    consumer = topic.subscribe()
    topic.send(b"1.20")
    consumer.take()
    return consumer, [("in_flight", "this consumer", 1)], "The consumer of 1:prices gets nothing"


def a_limit_that_falls_and_nothing_left_to_give() -> Staged:
    bay = SimulatedBay(memory_limit="64MiB", max_file_length="8MiB")
    holder = bay.queue("held").subscribe(prefetch=0)
    while bay.dispatch_area.dispatch_holder.held_bytes < 16 * MIB:
        bay.queue("held").send_many(Message(bytes(KIB)) for _ in range(1000))
        holder.take(1000)
    send(bay, 400)
    others = [bay.queue().subscribe() for _ in range(400)]
    bay.bay.resize("4MiB")
    consumer = next(other for other in others if not other.take())
    causes = [(cause.reason, cause.holder, cause.messages) for cause in bay.bay.explain(consumer).causes]
    assert causes[0] == ("memory", "dispatch_area", 0)
    return consumer, causes, "memory is used up, most of it by dispatch_area"


# A queue.


def a_queue_without_messages() -> Staged:
    return SimulatedBay().queue(), [], "0:orders has no messages"


def a_queue_without_consumers() -> Staged:
    bay = SimulatedBay()
    send(bay, 3)
    return bay.queue(), [("no_consumer", "0:orders", 3)], "3 messages of 15 bytes: 3 messages wait for a consumer"


def a_queue_whose_messages_are_everywhere() -> Staged:
    bay = SimulatedBay()
    send(bay, 20)
    consumer, other = bay.queue().subscribe(), bay.queue().subscribe()
    transaction = bay.bay.transaction()
    consumer.ack(consumer.take(2), transaction=transaction)
    transaction.prepare(b"branch")
    consumer.take(3)
    other.take(4)
    other.nack(other.take(5), delay=2.0)
    number = f"{transaction.xid!r} (prepared)"
    causes = [
        ("in_flight", "2 consumers", 7),
        ("delayed", "nack with a delay", 5),
        ("transaction", number, 2),
        ("ready", "2 consumers", 6),
    ]
    return bay.queue(), causes, "6 messages wait for the next take of 2 consumers"


def a_queue_whose_consumers_hold_enough() -> Staged:
    bay = SimulatedBay()
    send(bay, 3)
    bay.queue().subscribe(prefetch=1).take(2)
    causes = [("in_flight", "1 consumer", 1), ("prefetch", "1 consumer", 2)]
    return bay.queue(), causes, "2 messages wait for room in the prefetch of 1 consumer"


def a_queue_that_memory_keeps() -> Staged:
    consumer, _, _ = memory_in_flight_used_up()
    assert isinstance(consumer, Consumer)
    queue = queue_of(consumer)
    return queue, [("in_flight", "1 consumer", 1), ("memory", "dispatch_area", 4)], "4 messages wait for memory"


def a_queue_that_no_selector_matches() -> Staged:
    bay = SimulatedBay()
    bay.queue().subscribe(selector="kg = 7")
    send(bay, 3, headers={"kg": 3})
    return bay.queue(), [("selector", "0:orders", 3)], "no selector of a consumer matches 3 messages"


def a_queue_of_which_a_selector_matches_some() -> Staged:
    bay = SimulatedBay()
    bay.queue().subscribe(selector="kg = 7")
    send(bay, 3, headers={"kg": 3})
    send(bay, 2, headers={"kg": 7})
    causes = [("ready", "1 consumer", 2), ("selector", "0:orders", 3)]
    return bay.queue(), causes, "2 messages wait for the next take of 1 consumer; no selector of a consumer matches 3 "


def a_queue_of_which_one_of_two_consumers_wants_all() -> Staged:
    bay = SimulatedBay()
    bay.queue().subscribe(selector="kg = 7")
    bay.queue().subscribe()
    send(bay, 3, headers={"kg": 3})
    return bay.queue(), [("ready", "1 consumer", 3)], "3 messages wait for the next take of 1 consumer."


def a_queue_whose_groups_are_owned_by_a_consumer_that_does_not_match() -> Staged:
    bay = SimulatedBay()
    owner = bay.queue().subscribe(selector="kg = 7")
    send(bay, 1, headers={"kg": 7}, group="tea")
    owner.ack(owner.take())
    other = bay.queue().subscribe()
    send(bay, 3, headers={"kg": 3}, group="tea")
    assert other.take(5) == owner.take(5) == []
    causes = [("group", "the owners of their groups", 3)]
    return bay.queue(), causes, "3 messages are not matched by the owner of their group."


def a_queue_whose_groups_are_owned_crosswise() -> Staged:
    bay = SimulatedBay()
    tea, rum = (bay.queue().subscribe(selector=f"kg = {kg}") for kg in (7, 3))
    for owner, kg, group in ((tea, 7, "tea"), (rum, 3, "rum")):
        send(bay, 1, headers={"kg": kg}, group=group)
        owner.ack(owner.take())
    send(bay, 3, headers={"kg": 3}, group="tea")
    send(bay, 5, headers={"kg": 7}, group="rum")
    assert tea.take(9) == rum.take(9) == []
    causes = [("group", "the owners of their groups", 8)]
    return bay.queue(), causes, "8 messages are not matched by the owner of their group."


def a_queue_whose_groups_are_owned_by_one_of_three_and_two_match_the_same() -> Staged:
    bay = SimulatedBay()
    owner, *others = (bay.queue().subscribe(selector=f"kg {wanted}") for wanted in ("= 7", "< 5", "< 6"))
    send(bay, 1, headers={"kg": 7}, group="tea")
    owner.ack(owner.take())
    send(bay, 3, headers={"kg": 3}, group="tea")
    send(bay, 3, headers={"kg": 100})
    assert [consumer.take(9) for consumer in (owner, *others)] == [[], [], []]
    causes = [("group", "the owners of their groups", 3), ("selector", "0:orders", 3)]
    return bay.queue(), causes, "3 messages are not matched by the owner of their group"


def a_queue_that_is_to_be_read() -> Staged:
    bay = SimulatedBay()
    send(bay, 3)
    bay.reopen()
    bay.queue().subscribe()
    return bay.queue(), [("loading", "0:orders", 3)], "up to 3 messages wait to be read"


def a_queue_that_is_paused() -> Staged:
    bay = SimulatedBay()
    send(bay, 3)
    bay.queue().subscribe()
    bay.queue().pause()
    return bay.queue(), [("paused", "0:orders", 3)], "3 messages wait for the queue to be resumed"


def a_paused_queue_without_consumers() -> Staged:
    bay = SimulatedBay()
    send(bay, 3)
    bay.queue().pause()
    causes = [("no_consumer", "0:orders", 3), ("paused", "0:orders", 0)]
    return bay.queue(), causes, "3 messages wait for a consumer, of which there is none; the queue is paused."


def a_paused_queue_that_no_selector_matches() -> Staged:
    bay = SimulatedBay()
    bay.queue().subscribe(selector="kg = 7")
    send(bay, 3, headers={"kg": 3})
    bay.queue().pause()
    causes = [("selector", "0:orders", 3), ("paused", "0:orders", 0)]
    return bay.queue(), causes, "no selector of a consumer matches 3 messages; the queue is paused."


def a_paused_queue_without_messages() -> Staged:
    bay = SimulatedBay()
    bay.queue().pause()
    return bay.queue(), [("paused", "0:orders", 0)], "0:orders has no messages: the queue is paused."


def a_queue_with_a_damaged_message() -> Staged:
    bay = damaged()
    bay.queue().subscribe().take()
    return bay.queue(), [("unreadable", "0:orders", 1)], "1 message can't be read"


def damaged() -> SimulatedBay:
    """One message, whose body does not verify."""
    bay = SimulatedBay()
    bay.queue().send(b"x" * 1000)
    bay.reopen()
    unreadable = [(0, "the body does not verify")]
    bay.store.message_store.read = lambda regions, judge=None: ([], unreadable)  # type: ignore[method-assign]
    return bay


REPLACES = interpreted("replaces what compiled code has linked")
STAGES: list[Any] = [
    an_empty_queue,
    prefetch_used_up,
    prefetch_used_up_by_an_open_transaction,
    what_a_prepared_transaction_acknowledged,
    what_an_open_transaction_acknowledged_that_is_not_persistent,
    a_selector_that_matches_nothing,
    a_selector_that_matches_nothing_of_a_backlog,
    a_selector_whose_messages_others_do_not_hold,
    all_in_flight_with_another,
    all_in_flight_with_another_selector,
    all_in_its_own_hands,
    parked_with_a_delay,
    one_between_others_that_expired_before_they_are_due,
    acknowledged_in_a_prepared_transaction,
    acknowledged_in_a_transaction_that_survived,
    memory_in_flight_used_up,
    the_loader_is_reading,
    nothing_is_loaded_yet,
    a_selector_that_has_not_looked_yet,
    something_is_there,
    a_paused_queue,
    a_paused_queue_whose_messages_another_holds,
    an_empty_queue_that_is_paused,
    a_closed_consumer_of_a_paused_queue,
    non_persistent_messages_by_arrival,
    non_persistent_messages_in_tmp_storage,
    non_persistent_messages_in_flight,
    a_closed_consumer,
    a_draining_consumer,
    pytest.param(a_damaged_message, marks=REPLACES),
    a_subscription_that_has_read_everything,
    a_subscription_with_everything_in_flight,
    a_limit_that_falls_and_nothing_left_to_give,
    a_queue_without_messages,
    a_queue_without_consumers,
    a_queue_whose_messages_are_everywhere,
    a_queue_whose_consumers_hold_enough,
    a_queue_that_memory_keeps,
    a_queue_that_no_selector_matches,
    a_queue_of_which_a_selector_matches_some,
    a_queue_of_which_one_of_two_consumers_wants_all,
    a_queue_whose_groups_are_owned_by_a_consumer_that_does_not_match,
    a_queue_whose_groups_are_owned_crosswise,
    a_queue_whose_groups_are_owned_by_one_of_three_and_two_match_the_same,
    a_queue_that_is_to_be_read,
    a_queue_that_is_paused,
    a_paused_queue_without_consumers,
    a_paused_queue_that_no_selector_matches,
    a_paused_queue_without_messages,
    pytest.param(a_queue_with_a_damaged_message, marks=REPLACES),
]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_the_one_true_cause(stage: Callable[[], Staged]) -> None:
    subject, causes, sentence = stage()
    explanation = explain(subject)
    assert said(explanation) == causes, explanation
    assert sentence in explanation.sentence
    assert explanation.sentence.endswith(".")
    assert all(cause.frees for cause in explanation.causes)


def test_a_queue_and_an_offline_durable_subscription_are_explained_by_name() -> None:
    bay = SimulatedBay()
    send(bay, 2)
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    topic.send(b"x")
    assert bay.bay.explain("orders") == bay.bay.explain(bay.queue())
    found = bay.bay.explain("prices/audit")
    assert said(found) == [("no_consumer", "1:prices/audit", 1)]
    assert "1:prices/audit has 1 message of 1 byte: 1 message waits for a consumer" in found.sentence
    for name in ("price", "prices/", "prices/other", ""):
        with pytest.raises(SettingsError, match="there is no queue or topic"):
            bay.bay.explain(name)


def test_numbers_of_what_is_in_flight() -> None:
    bay = SimulatedBay()
    bay.queue().send(b"12345", headers={"kg": 1})
    consumer = bay.queue().subscribe()
    consumer.take()
    bay.clock.advance(90)
    [cause] = bay.bay.explain(consumer).causes
    assert cause.bytes == bay.queue().depth_bytes > 5
    assert cause.oldest_seconds == 90
    assert bay.bay.explain(bay.queue()).causes[0].oldest_seconds == 90


def test_a_delay_says_how_long() -> None:
    bay = SimulatedBay()
    send(bay, 1)
    consumer = bay.queue().subscribe()
    consumer.take()[0].nack(delay=5.0)
    bay.clock.advance(2)
    assert "due in 3.0 s" in bay.bay.explain(consumer).causes[0].frees
    bay.clock.advance(3)
    assert bay.bay.explain(consumer).causes[0].reason == "loading"


@interpreted("replaces what compiled code has linked")
def test_messages_that_are_not_synced_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    bay = SimulatedBay(sync="always")
    consumer = bay.queue().subscribe()
    seen: list[Said] = []
    sync = bay.syncer.sync

    def look(end: int | None = None) -> None:
        if bay.unpublished:
            seen.extend((said(bay.bay.explain(consumer)), said(bay.bay.explain(bay.queue()))))
        sync(end)

    monkeypatch.setattr(bay.syncer, "sync", look)
    bay.queue().send(b"x")
    assert seen == [[("sync", "journal", 1)]] * 2


def test_blocked_senders_and_what_they_wait_for() -> None:
    policies = {"orders": DestinationPolicy(max_messages=2, block_timeout_seconds=30)}
    bay = SimulatedBay(policies=policies)
    queue = bay.queue()
    send(bay, 2)

    def blocked() -> None:
        queue.send(b"123")

    thread = threading.Thread(target=blocked, daemon=True)
    thread.start()
    limits = bay.queue_state("orders").limits
    assert limits is not None
    deadline = threading.Event()
    for _ in range(1000):
        with bay.lock:
            if limits.blocked():
                break
        deadline.wait(0.01)
    explanation = bay.bay.explain(queue)
    limit = "max_messages=2 of the queue 'orders'"
    assert said(explanation) == [("no_consumer", "0:orders", 2), ("blocked_send", limit, 1)]
    clause = "a send of 1 message (3 bytes) to 'orders' has been blocked 0.0 s: it waits for room under "
    assert f"{clause}{limit}; 0:orders holds " in explanation.sentence
    with queue.subscribe() as consumer:
        consumer.ack(consumer.take())
    thread.join(10)
    assert not thread.is_alive()
    assert said(bay.bay.explain(queue)) == [("no_consumer", "0:orders", 2)]


@pytest.mark.parametrize("subject", [1.0, bytearray(), True, object()])
def test_what_cannot_be_explained_is_refused(subject: Any) -> None:
    with pytest.raises(
        SettingsError, match="a queue, a topic, a consumer, an xid, or nothing for the whole can be explained"
    ):
        SimulatedBay().bay.explain(subject)


def test_what_belongs_to_another_store_is_refused() -> None:
    bay, other = SimulatedBay(), SimulatedBay()
    for subject in (other.queue(), other.queue().subscribe()):
        with pytest.raises(SettingsError, match="belongs to another store"):
            bay.bay.explain(subject)


def test_a_closed_store_says_so() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    consumer = queue.subscribe()
    bay.bay.close()
    for subject in (queue, consumer):
        with pytest.raises(Closed):
            bay.bay.explain(subject)


@pytest.mark.parametrize("seed", sampled(range(30), 12))
def test_whatever_is_said_the_next_take_agrees(seed: int) -> None:
    random = Random(seed)
    bay = SimulatedBay(seed, memory_limit="4MiB", max_file_length="1MiB")
    queue = bay.queue()
    takers: list[Consumer] = []
    transactions: list[Any] = []
    reasons: set[str] = set()
    for step in range(600):
        dice = random.random()
        if dice < 0.2:
            for _ in range(random.randrange(4)):
                queue.send(
                    bytes(random.choice((10, 1000, 100_000))),
                    headers={"n": random.randrange(3)},
                    priority=random.choice((4, 4, 9)),
                    persistent=random.random() < 0.7,
                )
        elif dice < 0.3 and len(takers) < 5:
            selector = random.choice((None, None, "n = 0", "n > 5"))
            takers.append(queue.subscribe(selector=selector, prefetch=random.choice((0, 1, 5, 100))))
        elif dice < 0.33 and takers:
            takers.pop(random.randrange(len(takers))).close()
        elif dice < 0.4:
            bay.clock.advance(random.choice((0.1, 1.0)))
            bay.bay.step()
        elif dice < 0.42:
            random.choice((queue.pause, queue.resume, queue.resume))()
        elif dice < 0.46 and transactions:
            transaction = transactions.pop()
            random.choice((transaction.commit, transaction.rollback))()
        elif dice < 0.7 and takers:
            settle_some(random, bay, random.choice(takers), transactions, step)
        elif takers:
            taker = random.choice(takers)
            explanation = bay.bay.explain(taker)
            reason = explanation.causes[0].reason
            reasons.add(reason)
            waiting = {cause.reason for cause in bay.bay.explain(queue).causes}
            got = taker.take(random.choice((1, 3, 50)))
            if reason == "ready":
                assert got, (step, explanation)
                assert "ready" in waiting
            elif reason != "loading":
                assert not got, (step, explanation)
            elif taker.selector_group.selector is None:
                assert got, (step, explanation)
        counted = sum(cause.messages for cause in bay.bay.explain(queue).causes if cause.reason != "loading")
        assert counted <= queue.depth
    assert {"ready", "prefetch", "empty"} & reasons
    bay.check()


def settle_some(random: Random, bay: SimulatedBay, taker: Consumer, transactions: list[Any], step: int) -> None:
    held = held_by(taker)
    held = random.sample(held, random.randrange(len(held) + 1))
    dice = random.random()
    if dice < 0.5:
        taker.ack(held)
    elif dice < 0.7:
        taker.nack(held, delay=random.choice((0.0, 0.5, 2.0)))
    elif held := [delivery for delivery in held if delivery.persistent]:
        transaction = bay.bay.transaction()
        try:
            taker.ack(held, transaction=transaction)
        except StoreFull:
            transaction.rollback()
            return
        if random.random() < 0.5:
            transaction.prepare(b"%d" % step)
        transactions.append(transaction)
