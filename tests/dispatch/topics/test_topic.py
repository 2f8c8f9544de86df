"""Topics: who gets what, what stays for whom, and what of it a restart and a cleanup leave."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from simulated_bay import SimulatedBay

from forebay import Consumer, Message, SelectorError, SettingsError, SubscriptionInUse, Topic

KIB = 1024
EVERYTHING = 1_000_000


@pytest.fixture(params=["never", "always"])
def simulated(request: pytest.FixtureRequest) -> Iterator[SimulatedBay]:
    simulated = SimulatedBay(sync=request.param, max_file_length="64KiB")
    yield simulated
    check(simulated)


def check(simulated: SimulatedBay) -> None:
    simulated.check()
    simulated.store.subscriptions._check()


def topic(simulated: SimulatedBay) -> Topic:
    return simulated.bay.topic("prices")


def bodies(consumer: Consumer, most: int = EVERYTHING) -> list[bytes]:
    """Take and acknowledge all there is."""
    found: list[bytes] = []
    while taken := consumer.take(min(most - len(found), 1000) or 1):
        found += [delivery.body for delivery in taken]
        consumer.ack(taken)
        if len(found) >= most:
            break
    return found


def backlog(simulated: SimulatedBay, name: str, selector: str | None = None) -> list[bytes]:
    """What a durable subscription has, taken and given back."""
    with topic(simulated).subscribe(durable=name, selector=selector, prefetch=0) as consumer:
        found: list[bytes] = []
        while taken := consumer.take(1000):
            found += [delivery.body for delivery in taken]
    return found


def send(simulated: SimulatedBay, count: int, size: int = KIB, first: int = 0) -> list[bytes]:
    sent = [b"%08d" % number + bytes(size - 8) for number in range(first, first + count)]
    topic(simulated).send_many(Message(body, headers={"n": n}) for n, body in enumerate(sent, first))
    return sent


# Who gets what.


def test_each_subscription_gets_each_message(simulated: SimulatedBay) -> None:
    consumers = [topic(simulated).subscribe(durable=name) for name in "ab"] + [topic(simulated).subscribe()]
    topic(simulated).send(b"one")
    topic(simulated).send_many([Message(b"two"), Message(b"three")])
    for consumer in consumers:
        assert bodies(consumer) == [b"one", b"two", b"three"]
        assert consumer.take() == []


def test_a_delivery_tells_of_the_topic_and_what_send_returned(simulated: SimulatedBay) -> None:
    consumer = topic(simulated).subscribe(durable="a")
    message_id = topic(simulated).send(b"body", headers={"region": "eu"}, priority=7)
    (delivery,) = consumer.take()
    assert (delivery.destination, delivery.id, delivery.priority) == ("prices", message_id, 7)
    assert (delivery.body, delivery.headers, delivery.attempts) == (b"body", {"region": "eu"}, 1)
    consumer.nack(delivery)
    assert consumer.take()[0].attempts == 2


def test_higher_priorities_come_first(simulated: SimulatedBay) -> None:
    consumer = topic(simulated).subscribe(durable="a")
    for priority in (4, 0, 9, 4):
        topic(simulated).send(b"%d" % priority, priority=priority)
    assert bodies(consumer) == [b"9", b"4", b"4", b"0"]


def test_a_subscription_gets_nothing_that_was_sent_before_it(simulated: SimulatedBay) -> None:
    topic(simulated).send(b"to nobody")
    first = topic(simulated).subscribe(durable="first")
    topic(simulated).send(b"to the first")
    second, third = topic(simulated).subscribe(durable="second"), topic(simulated).subscribe()
    assert bodies(first) == [b"to the first"] and bodies(second) == bodies(third) == []
    topic(simulated).send(b"to all")
    assert bodies(first) == bodies(second) == bodies(third) == [b"to all"]
    first.close()
    simulated.reopen()
    assert backlog(simulated, "second") == []


def test_a_queue_and_a_topic_may_have_the_same_name(simulated: SimulatedBay) -> None:
    consumer = topic(simulated).subscribe(durable="a")
    queue = simulated.queue("prices")
    queue.send(b"to the queue")
    topic(simulated).send(b"to the topic")
    assert bodies(consumer) == [b"to the topic"]
    assert bodies(queue.subscribe()) == [b"to the queue"]
    assert simulated.bay.destinations() == simulated.bay.topics() == ["prices"]
    simulated.reopen()
    assert simulated.bay.destinations() == simulated.bay.topics() == ["prices"]


def test_ids_are_never_given_twice_though_nobody_subscribed(simulated: SimulatedBay) -> None:
    ids = [topic(simulated).send(b"to nobody"), *topic(simulated).send_many([Message(b"")] * 600)]
    simulated.reopen()
    ids += [topic(simulated).send(b"to nobody")]
    topic(simulated).subscribe(durable="a")
    ids += [topic(simulated).send(b"to somebody")]
    simulated.reopen()
    ids += [topic(simulated).send(b"to somebody")]
    assert len(set(ids)) == 604


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_ids_are_never_given_twice_after_a_crash(simulated: SimulatedBay, is_index_lost: bool) -> None:
    ids = [topic(simulated).send(b"to nobody"), *topic(simulated).send_many([Message(b"")] * 600)]
    simulated.crash(is_index_lost=is_index_lost)
    ids += [topic(simulated).send(b"to nobody")]
    assert len(set(ids)) == 602


def test_what_was_stored_before_a_subscription_and_is_published_after_it_is_not_for_it() -> None:
    simulated = SimulatedBay(sync="always")
    first = topic(simulated).subscribe()
    with simulated.unconfirmed():
        topic(simulated).send(b"before")
        topic(simulated).send_many([Message(b"before")] * 2)
        second = topic(simulated).subscribe()
    topic(simulated).send(b"after")
    assert bodies(first) == [b"before"] * 3 + [b"after"]
    assert bodies(second) == [b"after"]
    check(simulated)


def test_what_nobody_subscribed_to_is_not_stored(simulated: SimulatedBay) -> None:
    topic(simulated)
    before = simulated.bay.statistics().store.journal_bytes
    send(simulated, 512)
    assert simulated.bay.statistics().store.journal_bytes - before < 3 * KIB
    assert simulated.bay.statistics().store.pending_messages == 0
    assert topic(simulated).statistics().enqueued == 512


# Durable subscriptions.


def test_a_durable_subscription_goes_on_without_its_consumer(simulated: SimulatedBay) -> None:
    consumer = topic(simulated).subscribe(durable="a")
    topic(simulated).send(b"one")
    consumer.close()
    topic(simulated).send(b"two")
    assert backlog(simulated, "a") == [b"one", b"two"]
    simulated.reopen()
    topic(simulated).send(b"three")
    with topic(simulated).subscribe(durable="a") as consumer:
        assert bodies(consumer, 2) == [b"one", b"two"]
    simulated.reopen()
    assert backlog(simulated, "a") == [b"three"]


def test_a_durable_subscription_has_one_consumer_at_a_time(simulated: SimulatedBay) -> None:
    consumer = topic(simulated).subscribe(durable="a")
    with pytest.raises(SubscriptionInUse) as caught:
        topic(simulated).subscribe(durable="a")
    assert (caught.value.topic, caught.value.name) == ("prices", "a")
    with pytest.raises(SubscriptionInUse):
        topic(simulated).unsubscribe("a")
    simulated.bay.topic("other").subscribe(durable="a")
    consumer.close()
    topic(simulated).subscribe(durable="a")


def test_a_name_is_checked(simulated: SimulatedBay) -> None:
    for name in ("", "a\n", "x" * 256, 7):
        with pytest.raises(SettingsError, match="subscription"):
            topic(simulated).subscribe(durable=name)  # type: ignore[arg-type]
    assert topic(simulated).subscriptions() == []


def test_unsubscribe_ends_it(simulated: SimulatedBay) -> None:
    topic(simulated).subscribe(durable="a").close()
    topic(simulated).send(b"never read")
    topic(simulated).unsubscribe("a")
    with pytest.raises(SettingsError, match="a durable subscription"):
        simulated.bay.topic("prices").unsubscribe(["a"])  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="no durable subscription 'a'"):
        topic(simulated).unsubscribe("a")
    assert backlog(simulated, "a") == []
    topic(simulated).send(b"to the new one")
    for _ in range(2):
        assert backlog(simulated, "a") == [b"to the new one"]
        assert topic(simulated).subscriptions() == ["a"]
        simulated.reopen()


def test_a_selector_is_kept(simulated: SimulatedBay) -> None:
    with pytest.raises(SelectorError):
        topic(simulated).subscribe(durable="a", selector="n =")
    assert topic(simulated).subscriptions() == []
    topic(simulated).subscribe(durable="a", selector="n > 1").close()
    send(simulated, 4)
    for selector in (None, "n > 2"):
        with pytest.raises(SettingsError, match="another selector"):
            topic(simulated).subscribe(durable="a", selector=selector)
    simulated.reopen()
    with pytest.raises(SettingsError, match="another selector"):
        topic(simulated).subscribe(durable="a")
    assert len(backlog(simulated, "a", "n  >  1")) == 2


# Those that are not durable.


def test_a_subscription_without_a_name_ends_with_its_consumer(simulated: SimulatedBay) -> None:
    consumer = topic(simulated).subscribe()
    send(simulated, 100)
    held = consumer.take(10)
    consumer.nack(held[:5], delay=1.0)
    consumer.close()
    assert simulated.store.subscriptions.numbers() == set()
    simulated.clock.advance(2.0)
    simulated.bay.step()
    simulated.bay.checkpoint()
    assert simulated.bay.statistics().store.pending_messages == 0
    assert topic(simulated).subscribe().take() == []


def test_a_backlog_larger_than_memory_is_read_back_without_a_name(simulated: SimulatedBay) -> None:
    consumer = topic(simulated).subscribe()
    sent = send(simulated, 6_000)
    assert bodies(consumer) == sent
    check(simulated)


def test_acks_of_a_subscription_without_a_name_write_nothing(simulated: SimulatedBay) -> None:
    consumer = topic(simulated).subscribe()
    send(simulated, 100)
    before = simulated.bay.statistics().store.journal_bytes
    for delivery in consumer.take(50):
        delivery.ack()
    consumer.ack(consumer.take(50))
    assert simulated.bay.statistics().store.journal_bytes == before


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_what_only_a_subscription_without_a_name_needed_is_gone_after_a_crash(
    simulated: SimulatedBay, is_index_lost: bool
) -> None:
    topic(simulated).subscribe()
    send(simulated, 1_000)
    simulated.bay.checkpoint()
    send(simulated, 1_000)
    simulated.crash(is_index_lost=is_index_lost)
    assert simulated.bay.statistics().store.pending_messages == 0
    assert topic(simulated).subscriptions() == []
    assert len(simulated.bay.cleanup().remaining) == 1


# What stays in the journal.


def test_slices_and_singles_that_only_a_subscription_without_a_name_needed_are_for_nobody_after_a_crash() -> None:
    simulated = SimulatedBay()
    unnamed = topic(simulated).subscribe()
    for slice_bodies in ([b"1", b"2"], [b"3", b"4", b"5"]):
        topic(simulated).send_many([Message(body) for body in slice_bodies])
    for n in range(3):
        topic(simulated).send(b"single %d" % n)
    assert len(bodies(unnamed)) == 8
    topic(simulated).subscribe(durable="late").close()
    topic(simulated).send_many([Message(b"6"), Message(b"7")])
    simulated.crash(is_index_lost=True)
    assert simulated.bay.statistics().store.pending_messages == 2
    assert backlog(simulated, "late") == [b"6", b"7"]
    check(simulated)


def test_a_message_is_stored_once_for_a_hundred_subscriptions(simulated: SimulatedBay) -> None:
    consumers = [topic(simulated).subscribe(durable=f"s{number}") for number in range(100)]
    before = simulated.bay.statistics().store.journal_bytes
    sent = send(simulated, 300, 10 * KIB)
    stored = simulated.bay.statistics().store
    assert stored.journal_bytes - before < 1.01 * 300 * 10 * KIB + 100 * KIB
    assert stored.pending_messages == 300
    assert 300 * 10 * KIB <= stored.live_bytes < 300 * 10 * KIB + 300 * 20
    for consumer in consumers:
        assert bodies(consumer) == sent
        assert consumer.take() == []
    simulated.bay.cleanup()
    assert simulated.bay.statistics().store.live_bytes == 0
    assert simulated.bay.statistics().store.data_logs <= 2


def test_one_offline_subscription_keeps_ten_thousand_messages(simulated: SimulatedBay) -> None:
    topic(simulated).subscribe(durable="offline").close()
    active = topic(simulated).subscribe(durable="active")
    sent = send(simulated, 10_000)
    assert bodies(active) == sent
    statistics = topic(simulated).statistics()
    assert [found.depth for found in statistics.subscriptions.values()] == [0, 10_000]
    assert statistics.subscriptions["active"].acknowledged == 10_000
    kept = simulated.bay.cleanup().remaining
    assert simulated.bay.statistics().store.pending_messages == 10_000
    active.close()
    simulated.reopen()
    assert backlog(simulated, "active") == []
    with topic(simulated).subscribe(durable="offline") as consumer:
        assert bodies(consumer, 5_000) == sent[:5_000]
    simulated.bay.checkpoint()
    topic(simulated).unsubscribe("offline")
    assert simulated.bay.statistics().store.pending_messages == 5_000
    report = simulated.bay.cleanup()
    assert set(report.deleted) >= set(kept[:-1]) and len(report.remaining) <= 2
    assert simulated.bay.statistics().store.pending_messages == 0


def test_a_subscription_that_has_read_everything_keeps_nothing(simulated: SimulatedBay) -> None:
    for name in "abc":
        topic(simulated).subscribe(durable=name).close()
    with topic(simulated).subscribe(durable="reader") as reader:
        for round_ in range(4):
            send(simulated, 200, first=200 * round_)
            for name in "abc":
                with topic(simulated).subscribe(durable=name) as consumer:
                    assert len(bodies(consumer)) == 200
            assert len(bodies(reader)) == 200
            assert len(simulated.bay.cleanup().remaining) <= 2


def test_acks_of_each_subscription_survive_the_loss_of_the_index(simulated: SimulatedBay) -> None:
    for name in "abc":
        topic(simulated).subscribe(durable=name).close()
    sent = send(simulated, 1_500, 300)
    with topic(simulated).subscribe(durable="a") as consumer:
        held = consumer.take(1000)
        while len(held) < 1000:
            held += consumer.take(1000 - len(held))
        consumer.ack(held[::2])
    with topic(simulated).subscribe(durable="b") as consumer:
        bodies(consumer, 700)
    simulated.bay.cleanup()
    expected = {name: backlog(simulated, name) for name in "abc"}
    assert expected["c"] == sent and expected["b"] == sent[700:] and len(expected["a"]) == 1000
    for is_index_lost in (False, True, True):
        simulated.crash(is_index_lost=is_index_lost)
        check(simulated)
        assert {name: backlog(simulated, name) for name in "abc"} == expected


def begin_data_log(simulated: SimulatedBay) -> None:
    """Nothing that this writes keeps a data log."""
    queue, newest = simulated.queue("filler"), simulated.journal.data_log
    with queue.subscribe() as consumer:
        while simulated.journal.data_log == newest:
            queue.send(bytes(20_000))
            consumer.ack(consumer.take())


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_an_ack_stays_while_another_subscription_keeps_its_message(
    simulated: SimulatedBay, is_index_lost: bool
) -> None:
    for name in "ab":
        topic(simulated).subscribe(durable=name).close()
    topic(simulated).send(b"kept by b")
    begin_data_log(simulated)
    with topic(simulated).subscribe(durable="a") as consumer:
        consumer.ack(consumer.take())
    begin_data_log(simulated)
    begin_data_log(simulated)
    simulated.bay.cleanup()
    simulated.crash(is_index_lost=is_index_lost)
    assert (backlog(simulated, "a"), backlog(simulated, "b")) == ([], [b"kept by b"])


def test_explain_names_the_subscription_that_keeps_a_data_log(simulated: SimulatedBay) -> None:
    topic(simulated).subscribe(durable="offline").close()
    topic(simulated).send(b"kept")
    begin_data_log(simulated)
    simulated.bay.checkpoint()
    cause = simulated.bay.explain(1).causes[0]
    assert (cause.reason, cause.holder, cause.messages) == ("pending_message", "1:prices/offline", 1)
    topic(simulated).unsubscribe("offline")
    assert 1 in simulated.bay.cleanup().deleted


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_a_subscription_that_ended_in_a_deleted_data_log_stays_ended(
    simulated: SimulatedBay, is_index_lost: bool
) -> None:
    for name in ("ends", "stays"):
        topic(simulated).subscribe(durable=name).close()
    topic(simulated).send(b"for both")
    begin_data_log(simulated)
    topic(simulated).unsubscribe("ends")
    topic(simulated).subscribe(durable="begins").close()
    begin_data_log(simulated)
    begin_data_log(simulated)
    assert 2 in simulated.bay.cleanup().deleted
    simulated.crash(is_index_lost=is_index_lost)
    assert topic(simulated).subscriptions() == ["begins", "stays"]
    assert (backlog(simulated, "begins"), backlog(simulated, "stays")) == ([], [b"for both"])


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_the_number_of_a_subscription_is_never_given_again(simulated: SimulatedBay, is_index_lost: bool) -> None:
    """Or the acks that are left of one would be taken for another's."""
    begin_data_log(simulated)
    topic(simulated).subscribe(durable="ends").close()
    (number,) = simulated.store.subscriptions.numbers()
    topic(simulated).unsubscribe("ends")
    begin_data_log(simulated)
    begin_data_log(simulated)
    assert 2 in simulated.bay.cleanup().deleted
    simulated.crash(is_index_lost=is_index_lost)
    topic(simulated).subscribe(durable="begins").close()
    assert min(simulated.store.subscriptions.numbers()) > number


# Selectors.


def test_an_offline_subscription_with_a_selector_keeps_only_what_matches(simulated: SimulatedBay) -> None:
    topic(simulated).subscribe(durable="some", selector="n = 5000").close()
    sent = send(simulated, 10_000)
    simulated.bay.step()
    assert topic(simulated).statistics().subscriptions["some"].depth == 1
    assert len(simulated.bay.cleanup().remaining) <= 3
    assert backlog(simulated, "some", "n = 5000") == [sent[5000]]
    simulated.crash(is_index_lost=True)
    assert topic(simulated).statistics().subscriptions["some"].depth == 1
    assert backlog(simulated, "some", "n = 5000") == [sent[5000]]


def test_what_does_not_match_is_acknowledged_in_runs(simulated: SimulatedBay) -> None:
    topic(simulated).subscribe(durable="none", selector="n < 0").close()
    send(simulated, 10_000)
    before = simulated.bay.statistics().store.journal_bytes
    simulated.bay.step()
    assert topic(simulated).statistics().subscriptions["none"].depth == 0
    assert simulated.bay.statistics().store.journal_bytes - before < 700, "one ack, and the next data log"


@pytest.mark.parametrize("durable", ["some", None])
def test_a_slow_consumer_with_a_selector_keeps_only_what_matches(simulated: SimulatedBay, durable: str | None) -> None:
    consumer = topic(simulated).subscribe(durable=durable, selector="n < 3000")
    sent = send(simulated, 10_000)
    simulated.bay.step()
    assert bodies(consumer, 1) == sent[:1]
    simulated.bay.step()
    simulated.bay.checkpoint()
    assert simulated.bay.statistics().store.pending_messages == 2_999
    send(simulated, 100, first=10_000)
    assert bodies(consumer) == sent[1:3000]
    simulated.bay.step()
    simulated.bay.checkpoint()
    assert simulated.bay.statistics().store.pending_messages == 0


def test_a_large_message_that_does_not_match_goes_too(simulated: SimulatedBay) -> None:
    topic(simulated).subscribe(durable="some", selector="n = 1").close()
    for n in range(3):
        topic(simulated).send(bytes(600 * KIB), headers={"n": n})
    simulated.bay.step()
    assert topic(simulated).statistics().subscriptions["some"].depth == 1
    assert len(backlog(simulated, "some", "n = 1")) == 1


def test_a_load_is_not_judged_as_the_message_of_the_same_number_that_arrives_meanwhile(simulated: SimulatedBay) -> None:
    topic(simulated).subscribe(durable="some", selector="n >= 0").close()
    sent = send(simulated, 2)
    consumer = topic(simulated).subscribe(durable="some", selector="n >= 0")
    prices = simulated.topic_state("prices")
    [target] = consumer.selector_group.lists
    with simulated.lock:
        load = simulated.loader.begin(target, is_needed=True)
    assert load is not None and consumer.selector_group.selector is not None
    prices.selector_matches.begin(4, 0)  # a non-persistent message, in another thread
    assert not prices.selector_matches.matches(
        consumer.selector_group.selector, target.lane, (0, b"", b"without a number", 0)
    )
    simulated.loader.finish(load)
    prices.selector_matches.finish()
    assert bodies(consumer) == sent


# Limits.


def test_a_topic_holds_the_memory_limit(simulated: SimulatedBay) -> None:
    consumers = [topic(simulated).subscribe(durable=f"s{n}", prefetch=0) for n in range(5)]
    sent = send(simulated, 4_000)
    held = [consumer.take(500) for consumer in consumers]
    check(simulated)
    memory = simulated.bay.statistics().memory
    assert memory.held_bytes_max <= memory.limit_bytes
    for consumer, batch in zip(consumers, held, strict=True):
        assert [delivery.body for delivery in batch] == sent[: len(batch)]
        consumer.ack(batch)
        assert bodies(consumer) == sent[len(batch) :]


def test_more_is_unsubscribed_than_the_index_holds_at_once() -> None:
    simulated = SimulatedBay(index_cache_size="256KiB", max_file_length="64KiB", memory_limit="64MiB")
    for name in ("whole", "half"):
        topic(simulated).subscribe(durable=name).close()
    consumer = topic(simulated).subscribe(durable="half", prefetch=0)
    for n in range(60):
        send(simulated, 512, 16, first=512 * n)
        consumer.ack(consumer.take(512)[::2])
    simulated.bay.checkpoint()
    topic(simulated).unsubscribe("whole")
    simulated.bay.cleanup()
    assert simulated.bay.statistics().store.pending_messages == 60 * 256
    check(simulated)


def test_subscriptions_get_a_message_in_the_order_in_which_they_began(simulated: SimulatedBay) -> None:
    """Not by where they lie in RAM, or a seed would mean another run in another process."""
    durable = topic(simulated).subscribe(durable="first")
    consumers = [durable, *(topic(simulated).subscribe() for _ in range(50))]
    assert simulated.topic_state("prices").open_subscriptions() == [consumer.destination for consumer in consumers]
