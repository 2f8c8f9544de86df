"""Message groups: one consumer at a time, in order, even if consumers come, go, give back or stand still."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from delivering import bodies, take_all
from sampling import sampled
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut, SimulatedDisk

from forebay import (
    Consumer,
    Delivery,
    DestinationPolicy,
    ForebayError,
    Message,
    MessageTooLarge,
    Queue,
    SettingsError,
    TransactionError,
)
from forebay.dispatch.distribution.assigning import AssigningDistribution
from forebay.dispatch.distribution.message_groups import BUCKETS, RUNS_MAX, bucket_of


def two_groups() -> tuple[str, str]:
    """Two of them in different buckets."""
    names = [f"g{number}" for number in range(3)]
    return names[0], next(name for name in names if bucket_of(name) != bucket_of(names[0]))


def neighbours() -> tuple[str, str]:
    """Two groups that share a bucket."""
    seen: dict[int, str] = {}
    for number in range(10 * BUCKETS):
        other = seen.setdefault(bucket_of(f"g{number}"), f"g{number}")
        if other != f"g{number}":
            return other, f"g{number}"
    raise AssertionError


def send(queue: Queue, *messages: str) -> None:
    """ "a1": body and group "a"."""
    for text in messages:
        queue.send(text.encode(), group=text.rstrip("0123456789"))


# ---------------------------------------------------------------------- what a message says


def test_the_group_travels_with_the_message(bay: SimulatedBay, queue: Queue) -> None:
    queue.send(b"1", group="ä", headers={"n": 1}, message_id="mine")
    queue.send_many([Message(b"2", group="b"), Message(b"3")])
    with bay.bay.transaction() as transaction:
        queue.send(b"4", group="c", transaction=transaction)
    queue.send(b"5", group="d", persistent=False)
    queue.send(b"6", group="e", expires_in=60.0)
    assert [message.group for message in queue.browse()] == ["ä", "b", None, "c", "d", "e"]
    with queue.subscribe() as consumer:
        taken = take_all(consumer)
        assert [delivery.group for delivery in taken] == ["ä", "b", None, "c", "d", "e"]
        assert (taken[0].headers, taken[0].id) == ({"n": 1}, "mine")


def test_a_selector_reads_the_group(queue: Queue) -> None:
    queue.send(b"none", headers={"JMSXGroupID": "a"})
    send(queue, "a1", "b1")
    with queue.subscribe(selector="JMSXGroupID = 'a'") as consumer:
        assert bodies(consumer.take(10)) == [b"a1"]
    with queue.subscribe(selector="JMSXGroupID IS NULL") as consumer:
        assert bodies(consumer.take(10)) == [b"none"]


@pytest.mark.parametrize("group", ["", "x" * 256, "ß" * 128, 7, b"a", "\ud800"])
def test_what_is_no_group_is_refused(queue: Queue, group: object) -> None:
    with pytest.raises(SettingsError):
        queue.send(b"x", group=group)  # type: ignore[arg-type]
    with pytest.raises(SettingsError):
        queue.send_many([Message(b"x", group=group)])  # type: ignore[arg-type]
    assert queue.depth == 0


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize(
    "wrong",
    [
        {"body": bytes(5 << 20)},
        {"priority": 10},
        {"priority": True},
        {"priority": -1, "persistent": False},
        {"persistent": 1},
        {"expires_in": -1.0},
        {"delay": -1.0},
    ],
    ids=" ".join,
)
def test_a_message_that_is_refused_leaves_the_queue_without_groups(
    queue: Queue, wrong: dict[str, Any], is_alone: bool
) -> None:
    fields: dict[str, Any] = {"body": b"x", "group": "a", **wrong}
    with pytest.raises(ForebayError):
        if is_alone:
            queue.send(**fields)
        else:
            queue.send_many([Message(**fields)])
    assert queue.depth == 0 and not queue.destination.has_message_groups
    send(queue, "a1")
    assert queue.destination.has_message_groups


def test_a_slice_of_which_a_later_message_is_refused_leaves_the_queue_without_groups(queue: Queue) -> None:
    with pytest.raises(MessageTooLarge) as caught:
        queue.send_many([Message(b"1", group="a"), Message(bytes(5 << 20))])
    assert caught.value.stored == 0
    assert queue.depth == 0 and not queue.destination.has_message_groups


def test_a_message_for_a_transaction_that_has_ended_leaves_the_queue_without_groups(
    bay: SimulatedBay, queue: Queue
) -> None:
    with bay.bay.transaction() as transaction:
        queue.send(b"1", transaction=transaction)
    with pytest.raises(TransactionError):
        queue.send(b"2", group="a", transaction=transaction)
    with pytest.raises(TransactionError):
        queue.send_many([Message(b"2", group="a")], transaction=transaction)
    assert queue.depth == 1 and not queue.destination.has_message_groups


def test_a_topic_hands_the_group_on(bay: SimulatedBay) -> None:
    topic = bay.bay.topic("prices")
    with topic.subscribe() as consumer:
        topic.send(b"x", group="a")
        assert consumer.take()[0].group == "a"


# ---------------------------------------------------------------------- one consumer


def test_consumers_that_come_and_go_leave_no_list_behind(bay: SimulatedBay, queue: Queue) -> None:
    send(queue, *(f"{group}{number}" for group in "abc" for number in range(10)))
    with queue.subscribe(prefetch=0):
        for _ in range(3):
            with queue.subscribe(prefetch=0) as consumer:
                consumer.nack(consumer.take(4))
            bay.check()  # the live curve follows the lists that are there, and no others


def test_a_group_stays_with_the_consumer_that_began_it(queue: Queue) -> None:
    a, b = queue.subscribe(), queue.subscribe()
    send(queue, "g1", "g2")
    assert bodies(a.take()) == [b"g1"]
    assert b.take(10) == []
    assert bodies(a.take(10)) == [b"g2"]
    send(queue, "g3")
    assert b.take(10) == []
    assert bodies(a.take(10)) == [b"g3"]


def test_messages_without_a_group_are_everybodys(queue: Queue) -> None:
    a, b = queue.subscribe(), queue.subscribe()
    send(queue, "g1")
    queue.send(b"free")
    send(queue, "g2")
    assert bodies(a.take()) == [b"g1"]
    assert bodies(b.take(10)) == [b"free"]
    assert bodies(a.take(10)) == [b"g2"]


def test_consumers_that_were_there_before_the_first_group_keep_to_it_too(queue: Queue) -> None:
    a, b = queue.subscribe(), queue.subscribe()
    queue.send(b"free")
    [free] = a.take()
    send(queue, "g1", "g2")
    assert bodies(b.take()) == [b"g1"] and a.take() == []
    free.nack()
    assert sorted(bodies(take_all(b))) == [b"free", b"g2"]


def test_messages_of_a_closed_owner_go_to_the_next_in_order(queue: Queue) -> None:
    a, b = queue.subscribe(), queue.subscribe()
    send(queue, "g1", "g2", "g3", "g4")
    first, second = a.take(2)
    assert b.take(10) == []
    a.ack(second)
    send(queue, "g5")
    assert b.take(10) == []
    a.close()
    assert bodies(b.take(10)) == [b"g1", b"g3", b"g4", b"g5"]


def test_a_waiting_owner_is_called_and_nobody_else(queue: Queue) -> None:
    calls: list[str] = []
    a = queue.subscribe(on_ready=lambda: calls.append("a"))
    b = queue.subscribe(on_ready=lambda: calls.append("b"))
    send(queue, "g1")
    assert bodies(a.take()) == [b"g1"] and a.take() == [] and b.take() == []
    calls.clear()
    send(queue, "g2")
    assert calls == ["a"]
    assert b.take() == [] and bodies(a.take()) == [b"g2"]


def test_the_others_take_what_lies_behind_an_owner_that_stands_still(bay: SimulatedBay, queue: Queue) -> None:
    stuck, busy = queue.subscribe(prefetch=1), queue.subscribe()
    mine, other = two_groups()
    queue.send_many(Message(b"x" * 1000, group=mine) for _ in range(20_000))
    assert len(stuck.take(10)) == 1
    queue.send(b"wanted", group=other)
    reads = bay.reads
    assert bodies(busy.take(10)) == [b"wanted"]
    assert bay.reads - reads < 2 * 20_000 / 64  # each message of the way is read once
    bay.check()
    hand = busy.selector_group, stuck.selector_group
    assert all(target.held_bytes <= 16 * RUNS_MAX for selector_group in hand for target in selector_group.in_turn())


def test_what_lies_aside_takes_bounded_memory_however_mixed_it_is(bay: SimulatedBay, queue: Queue) -> None:
    stuck, busy = queue.subscribe(prefetch=1), queue.subscribe()
    mine, other = two_groups()
    queue.send(b"0", group=mine)
    [held] = stuck.take()
    queue.send_many(Message(b"%d" % n, group=other if n % 2 else mine) for n in range(20_000))
    got = 0
    while taken := busy.take(256):
        assert {delivery.group for delivery in taken} == {other}
        got += len(taken)
        busy.ack(taken)
        assert all(target.held_bytes <= 16 * RUNS_MAX for target in stuck.selector_group.lists)
    assert got == 10_000
    stuck.ack(held)
    stuck.prefetch = 1000
    numbers: list[int] = []
    while taken := stuck.take(256):
        numbers += [int(delivery.body) for delivery in taken]
        stuck.ack(taken)
    assert numbers == list(range(0, 20_000, 2))
    assert queue.depth == 0


def test_groups_that_nobody_uses_any_more_leave_nothing_in_memory(queue: Queue) -> None:
    with queue.subscribe() as consumer:
        for begin in range(0, 20_000, 256):
            queue.send_many(Message(b"x", group=f"customer {number}") for number in range(begin, begin + 256))
            consumer.ack(consumer.take(256))
        assigner = queue.current.distribution
        assert isinstance(assigner, AssigningDistribution)
        assert assigner.message_groups.owned(consumer) <= BUCKETS
        assert consumer.take() == []
        assert not assigner.message_group_names.count
        assert assigner.audit() == (0, 0)
    assert not assigner.message_groups.has_owners


def rebalancing() -> SimulatedBay:
    return SimulatedBay(policies={">": DestinationPolicy(group_rebalance=True)})


def test_a_group_stays_with_its_consumer_until_that_closes_though_others_are_idle(queue: Queue) -> None:
    names = [f"customer {number}" for number in range(100)]
    consumers = [queue.subscribe(prefetch=20) for _ in range(3)]
    owners: dict[str | None, Consumer] = {}
    for turn in range(60):
        queue.send_many(Message(b"x", group=name) for name in names)
        for number in range(3):
            consumer = consumers[(turn + number) % 3]
            while taken := consumer.take(20 + turn % 7):
                consumer.ack(taken)
                assert all(owners.setdefault(delivery.group, consumer) is consumer for delivery in taken)
    first, *others = consumers
    given_up = {group for group, owner in owners.items() if owner is first}
    first.close()
    queue.send_many(Message(b"x", group=name) for name in names)
    after: dict[str | None, Consumer] = {}
    for consumer in others:
        while taken := consumer.take(20):
            consumer.ack(taken)
            after |= dict.fromkeys((delivery.group for delivery in taken), consumer)
    assert given_up and set(after) == set(names)
    assert all(owners[group] is consumer for group, consumer in after.items() if group not in given_up)


def test_what_is_in_no_group_is_not_kept_by_a_slow_owner(bay: SimulatedBay, queue: Queue) -> None:
    a, b = queue.subscribe(), queue.subscribe()
    send(queue, "g1")
    a.ack(a.take())
    for body in (b"1", b"2", b"3"):
        queue.send(body * 100)
    send(queue, "g2")
    assert len(a.take(3, max_bytes=150)) == 1
    for _ in range(40):
        bay.clock.advance(1.0)
        bay.step()
    assert a.is_slow
    assert bodies(b.take(10)) == [b"2" * 100, b"3" * 100]
    assert bodies(a.take(10)) == [b"g2"]
    bay.check()


def test_an_idle_consumer_gets_its_part_of_the_groups_where_the_policy_says_so() -> None:
    queue = rebalancing().queue()
    names = [f"customer {number}" for number in range(100)]
    a, b = queue.subscribe(), queue.subscribe()
    queue.send_many(Message(b"x", group=name) for name in names)
    a.ack(a.take(100))
    assert b.take() == []  # it has nothing to do, and from now on a part of the groups
    queue.send_many(Message(b"x", group=name) for name in names)
    of_b = {delivery.group for delivery in b.take(100)}
    of_a = {delivery.group for delivery in a.take(100)}
    assert not of_a & of_b and of_a | of_b == set(names)
    assert 25 <= len(of_b) <= 75


def test_a_group_in_the_hands_of_its_owner_is_not_levelled_away() -> None:
    queue = rebalancing().queue()
    names = [f"customer {number}" for number in range(100)]
    a, b = queue.subscribe(), queue.subscribe()
    queue.send_many(Message(b"x", group=name) for name in names)
    held = a.take(100)
    assert b.take() == []
    queue.send_many(Message(b"x", group=name) for name in names)
    assert b.take() == []
    a.ack(held)
    assert len(a.take(200)) == 100


def test_messages_that_only_another_selector_group_may_have_wait_for_its_close(queue: Queue) -> None:
    a, b = queue.subscribe(selector="n = 1"), queue.subscribe(selector="n >= 1")
    for number in (1, 2, 1, 2):
        queue.send(b"%d" % number, headers={"n": number}, group="g")
    assert bodies(a.take()) == [b"1"]
    assert b.take(10) == []
    assert bodies(a.take(10)) == [b"1"]
    a.close()
    assert bodies(b.take(10)) == [b"1", b"2", b"1", b"2"]


# ---------------------------------------------------------------------- delays, transactions, restarts


def test_a_delayed_message_holds_back_its_own_group_only(bay: SimulatedBay, queue: Queue) -> None:
    mine, other = neighbours()
    with queue.subscribe() as consumer:
        queue.send(b"1", group=mine)
        queue.send_many(
            [Message(b"2", group=mine), Message(b"3", group=other), Message(b"4"), Message(b"5", group=mine)]
        )
        [first] = consumer.take()
        first.nack(delay=5.0)
        assert bodies(consumer.take(10)) == [b"3", b"4"]
        assert consumer.take(10) == []
        bay.clock.advance(5.0)
        assert bodies(consumer.take(10)) == [b"1", b"2", b"5"]
        _, halted_bytes = queue.current.distribution.audit()
        assert halted_bytes == 0


def test_a_delay_ends_with_the_message(bay: SimulatedBay, queue: Queue) -> None:
    with queue.subscribe() as consumer:
        send(queue, "g1", "g2")
        consumer.take()[0].nack(delay=5.0)
        assert consumer.take() == []
        assert queue.purge() == 2
        send(queue, "g3")
        assert bodies(consumer.take(10)) == [b"g3"]


@pytest.mark.parametrize("commits", [True, False])
def test_what_a_transaction_holds_keeps_its_group_from_the_next_owner(
    bay: SimulatedBay, queue: Queue, commits: bool
) -> None:
    a, b = queue.subscribe(), queue.subscribe()
    send(queue, "g1", "g2")
    queue.send(b"free")
    transaction = bay.bay.transaction()
    a.take()[0].ack(transaction)
    a.close()
    assert bodies(b.take(10)) == [b"free"]
    if commits:
        transaction.commit()
        assert bodies(b.take(10)) == [b"g2"]
    else:
        transaction.rollback()
        assert bodies(b.take(10)) == [b"g1", b"g2"]


@pytest.mark.parametrize("is_index_lost", [True, False])
def test_groups_are_known_after_a_restart(bay: SimulatedBay, queue: Queue, is_index_lost: bool) -> None:
    queue.send(b"before")
    send(queue, "g1", "g2")
    bay.crash(is_index_lost=is_index_lost)
    queue = bay.queue()
    a, b = queue.subscribe(), queue.subscribe()
    assert bodies(a.take(2)) == [b"before", b"g1"]
    assert b.take(10) == []
    assert bodies(a.take(10)) == [b"g2"]


def test_that_a_queue_has_groups_survives_its_data_logs(bay: SimulatedBay) -> None:
    bay = SimulatedBay(max_file_length="1MiB")
    queue = bay.queue()
    send(queue, "g1")
    with queue.subscribe() as consumer:
        consumer.ack(consumer.take())
        for _ in range(3):
            for _ in range(2000):
                queue.send(b"x" * 1000)
            while taken := consumer.take(1000):
                consumer.ack(taken)
    assert bay.bay.cleanup().deleted
    bay.reopen()
    assert bay.queue().current.has_message_groups


def test_groups_move_with_their_messages(bay: SimulatedBay, queue: Queue) -> None:
    send(queue, "g1", "g2")
    queue.send(b"g3", group="g", persistent=False)
    assert queue.move("others") == 3
    others = bay.queue("others")
    a, b = others.subscribe(), others.subscribe()
    assert bodies(a.take()) == [b"g1"] and b.take(10) == []
    assert bodies(a.take(10)) == [b"g2", b"g3"]


@pytest.mark.parametrize("persistent", [True, False])
def test_a_move_of_nothing_brings_no_groups(bay: SimulatedBay, queue: Queue, persistent: bool) -> None:
    queue.send(b"g1", group="g", persistent=persistent)
    others = bay.queue("others")
    with queue.subscribe() as consumer:
        assert bodies(consumer.take()) == [b"g1"]
        assert queue.move(others) == 0
        assert not others.destination.has_message_groups
    assert queue.move(others) == 1
    assert others.destination.has_message_groups


def test_a_message_too_large_for_ram_keeps_its_group(bay: SimulatedBay) -> None:
    large = b"x" * 700_000
    bay.queue().send(large, group="g")
    bay.queue().send(b"g2", group="g")
    bay.reopen()
    a, b = bay.queue().subscribe(), bay.queue().subscribe()
    [held] = a.take()
    assert held.held_body is None and held.group == "g"
    assert b.take(10) == []
    held.nack()
    a.close()
    assert [len(delivery.body) for delivery in take_all(b)] == [700_000, 2]
    bay.check()


# ---------------------------------------------------------------------- everything at once


class Watch:
    """Says whether what is handed out is in order, and in one hand."""

    def __init__(self, queue: Queue, rebalances: bool) -> None:
        self.queue = queue
        self.rebalances = rebalances
        self.owners: dict[str | None, Consumer] = {}
        # Of each group: number -> who holds it.
        self.pending: dict[str, dict[int, Consumer | None]] = {}
        self.halves: list[int] = []
        self.wanted: dict[Consumer, int | None] = {}
        self.numbers = 0

    def send(self, random: Random, priorities: tuple[int, ...], persistents: tuple[bool, ...]) -> None:
        name = f"group {random.randrange(8)}"
        priority = random.choice(priorities)
        headers = {"number": self.numbers, "half": random.randrange(2)}
        self.halves.append(headers["half"])
        self.queue.send(
            random.randbytes(random.choice((5, 3000))),
            group=name,
            headers=headers,
            priority=priority,
            persistent=random.choice(persistents),
        )
        self.pending.setdefault(f"{name} {priority}", {})[self.numbers] = None
        self.numbers += 1

    @staticmethod
    def key(delivery: Delivery) -> str:
        return f"{delivery.group} {delivery.priority}"

    def taken(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            group = self.pending[self.key(delivery)]
            number = delivery.headers["number"]
            assert isinstance(number, int) and group[number] is None
            for older, holder in group.items():
                if self.wanted.get(consumer) in (None, self.halves[older]):
                    assert older >= number or holder is consumer, (older, number)
            held = {
                holder
                for key in self.pending
                for holder in self.pending[key].values()
                if key.startswith(str(delivery.group))
            }
            assert held <= {consumer, None}
            group[number] = consumer
            assert self.rebalances or self.owners.setdefault(delivery.group, consumer) is consumer

    def closed(self, consumer: Consumer) -> None:
        self.owners = {group: owner for group, owner in self.owners.items() if owner is not consumer}

    def settled(self, delivery: Delivery, *, is_gone: bool) -> None:
        group, number = self.pending[self.key(delivery)], delivery.headers["number"]
        assert isinstance(number, int)
        if is_gone:
            del group[number]
        else:
            group[number] = None


@pytest.mark.parametrize("rebalances", [False, True])
@pytest.mark.parametrize("seed", sampled([9, 10, 110, 145, 300, *range(8)], 8))
def test_whatever_happens_a_group_is_in_order_and_in_one_hand(seed: int, rebalances: bool) -> None:
    random = Random(seed)
    policy = DestinationPolicy(max_attempts=None, group_rebalance=rebalances, slow_consumer_seconds=5)
    bay = SimulatedBay(seed, policies={">": policy})
    queue = bay.queue()
    watch = Watch(queue, rebalances)
    held: dict[Consumer, list[Delivery]] = {}
    halves = (None,) if seed % 3 else (None, 0, 1)
    priorities = (4,) if seed % 2 else (2, 7)
    persistents = (True,) if seed % 4 else (True, False)
    for _ in range(600):
        step = random.randrange(100)
        if step < 40:
            for _ in range(random.randrange(1, 6)):
                watch.send(random, priorities, persistents)
        elif step < 45 and len(held) < 5:
            half = random.choice(halves)
            selector = f"half = {half}" if half is not None else None
            consumer = queue.subscribe(selector=selector, prefetch=random.choice((0, 1, 7)))
            held[consumer], watch.wanted[consumer] = [], half
        elif held and step < 47:
            consumer = random.choice(list(held))
            for delivery in held.pop(consumer):
                watch.settled(delivery, is_gone=False)
            consumer.close()
            watch.closed(consumer)
        elif held and step < 75:
            consumer = random.choice(list(held))
            deliveries = consumer.take(random.randrange(1, 9))
            watch.taken(consumer, deliveries)
            held[consumer] += deliveries
        elif held and step < 97:
            consumer = random.choice(list(held))
            random.shuffle(held[consumer])
            for delivery in [held[consumer].pop() for _ in range(random.randrange(len(held[consumer]) + 1))]:
                is_gone = random.random() < 0.7
                watch.settled(delivery, is_gone=is_gone)
                if is_gone:
                    delivery.ack()
                else:
                    delivery.nack(random.choice((0.0, 0.0, 2.0)))
        else:
            bay.clock.advance(1.0)
            bay.step()
        bay.check()
    for consumer in held:
        consumer.close()
        watch.closed(consumer)
    bay.clock.advance(5.0)
    for group in watch.pending.values():
        for number in group:
            group[number] = None
    with queue.subscribe(prefetch=0) as consumer:
        while deliveries := consumer.take(50):
            watch.taken(consumer, deliveries)
            for delivery in deliveries:
                watch.settled(delivery, is_gone=True)
            consumer.ack(deliveries)
    assert queue.depth == 0 and not any(watch.pending.values())
    bay.check()


def test_a_closed_owner_answers_and_its_transaction_still_ends(bay: SimulatedBay, queue: Queue) -> None:
    other = queue.subscribe()
    consumer = queue.subscribe(prefetch=1, on_ready=lambda: None)
    send(queue, "g1")
    with bay.bay.transaction() as transaction:
        consumer.take()[0].ack(transaction)
        assert consumer.take() == []
        consumer.close()
        assert consumer.statistics().direct_entries == 0
        transaction.rollback()
    assert bodies(other.take()) == [b"g1"]
    other.close()
    assert consumer.statistics().in_flight == 0


# ---------------------------------------------------------------------- why a consumer gets nothing


def reasons(bay: SimulatedBay, subject: Consumer | Queue) -> list[str]:
    explanation = bay.bay.explain(subject)
    assert all(str(cause.messages) in explanation.sentence for cause in explanation.causes if cause.reason != "empty")
    return [cause.reason for cause in explanation.causes]


def test_an_idle_consumer_is_told_who_owns_the_groups(bay: SimulatedBay, queue: Queue) -> None:
    a, b = queue.subscribe(prefetch=1), queue.subscribe()
    send(queue, "g1", "g2", "g3")
    a.take()
    assert b.take() == []
    assert reasons(bay, b) == ["in_flight", "group"]
    assert "the groups of 2 messages are owned by 1 other consumer" in bay.bay.explain(b).sentence
    assert reasons(bay, a) == ["prefetch"]
    assert reasons(bay, queue) == ["in_flight", "prefetch"]


def test_an_idle_consumer_is_told_of_a_delay_in_the_group(bay: SimulatedBay, queue: Queue) -> None:
    consumer = queue.subscribe()
    send(queue, "g1", "g2", "g3")
    consumer.take()[0].nack(delay=5.0)
    assert consumer.take() == []
    assert reasons(bay, consumer) == ["delayed", "group_delayed"]
    assert reasons(bay, queue) == ["delayed", "group_delayed"]
    bay.clock.advance(5.0)
    assert reasons(bay, consumer) in (["ready"], ["loading"])


def test_an_idle_consumer_is_told_of_an_exclusive_one(bay: SimulatedBay, queue: Queue) -> None:
    consumer, _ = queue.subscribe(), queue.subscribe(exclusive=True)
    assert reasons(bay, consumer) == ["empty"]
    send(queue, "g1", "g2")
    assert reasons(bay, consumer) == ["exclusive"]
    assert "another consumer is exclusive" in bay.bay.explain(consumer).sentence


def test_an_idle_consumer_is_told_of_one_with_a_higher_priority(bay: SimulatedBay, queue: Queue) -> None:
    low, high = queue.subscribe(), queue.subscribe(priority=1)
    queue.send(b"x")
    assert low.take() == []
    assert reasons(bay, low) == ["priority"]
    assert "a consumer of higher priority takes all" in bay.bay.explain(low).sentence
    assert reasons(bay, high) in (["ready"], ["loading"])


def test_a_consumer_with_something_in_reach_is_told_so(bay: SimulatedBay, queue: Queue) -> None:
    a, b = queue.subscribe(), queue.subscribe()
    send(queue, "g1")
    a.take()
    mine = next(f"h{n}" for n in range(9) if bucket_of(f"h{n}") != bucket_of("g"))
    queue.send(b"x", group=mine)
    assert reasons(bay, b) == ["ready"]


# ---------------------------------------------------------------------- what else a take can do


def test_max_bytes_prefetch_and_ack_up_to_do_what_they_do_elsewhere(queue: Queue) -> None:
    consumer = queue.subscribe(prefetch=3)
    queue.send_many(Message(b"x" * 1000, group=f"g{number % 3}") for number in range(10))
    assert len(consumer.take(10, max_bytes=2100)) == 2
    assert len(consumer.take(10)) == 1 and consumer.take(10) == []
    consumer.prefetch = 5
    last = consumer.take(10)[-1]
    consumer.ack_up_to(last)
    assert consumer.in_flight == 0 and queue.depth == 5
    consumer.prefetch = 0
    assert len(consumer.take(10)) == 5


def test_no_power_cut_leaves_a_group_in_a_queue_that_does_not_know_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    bay, random = SimulatedBay(sync="always"), Random(1)
    images: list[SimulatedDisk] = []
    enter = SimulatedDisk.enter

    def watched(disk: SimulatedDisk, call: str, name: str) -> object:
        if disk is bay.disk and call != "read":
            images.append(disk.crash_power(random, PowerCut.ANY))
        return enter(disk, call, name)

    monkeypatch.setattr(SimulatedDisk, "enter", watched)
    queue = bay.queue()
    queue.send(b"before")
    send(queue, "g1", "g2")
    with bay.bay.transaction() as transaction:
        bay.queue("others").send(b"x", group="h", transaction=transaction)
    queue.move("third")
    monkeypatch.undo()
    assert len(images) > 15
    known = 0
    for image in images:
        left = SimulatedBay()
        left.bay.close()
        left.disk = image
        left.crash(is_index_lost=True)
        for name in left.bay.destinations():
            found = left.queue(name)
            if any(message.group for message in found.browse()):
                known += 1
                assert found.current.has_message_groups
    assert known > 5


def test_a_dead_letter_of_a_group_is_nothing_that_its_owner_comes_first_for() -> None:
    bay = SimulatedBay(policies={">": DestinationPolicy(max_attempts=1)})
    queue = bay.bay.queue("orders")
    owner, other = queue.subscribe(), queue.subscribe(selector="kind = 'x'")
    queue.send(b"a1", group="a", headers={"kind": "x"})
    assert bodies(owner.take()) == [b"a1"]
    queue.send(b"a2", group="a", headers={"kind": "x"})
    queue.send(b"c1", headers={"kind": "y"})
    assert other.take() == []
    owner.nack(owner.take())
    assert other.take() == []
    assert reasons(bay, other) == ["dead_letter", "selector"]
