"""Explain: each staged situation has its one true cause, live and from outside; the logger says how cleanup decides."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from simulated_bay import SimulatedBay
from staged_stores import newest, roll, send, settle, small_bay

from forebay import Closed, Consumer, Explanation, Message, SettingsError
from forebay.dispatch.explain.disk import explain_data_log, explain_whole
from forebay.store.disk.disk import File
from forebay.store.environment.account import Unlimited
from forebay.store.environment.locks import OwnedLock
from forebay.store.format.state_record import Destination
from forebay.store.index.index import Index
from forebay.store.inspect.read_only import open_read_only
from forebay.store.maintenance.retention_reasons import RetentionReasons
from forebay.store.metadata.metadata_store import MetadataFull

LOGGER = "forebay.store.cleanup"


def from_outside(simulated: SimulatedBay, data_log: int) -> Explanation:
    seen = open_read_only(simulated.disk)
    reasons = seen.retention_reasons.of(data_log)
    return explain_data_log(data_log, seen.sizes[data_log], reasons, simulated.clock.time_ms())


Said = list[tuple[str, str, int, int]]
"""(reason, holder, messages, bytes) of each cause."""


def said(explanation: Explanation) -> Said:
    return [(cause.reason, cause.holder, cause.messages, cause.bytes) for cause in explanation.causes]


# Each stages a situation in data log 1, unless it returns another one, and returns what keeps it.

Stage = Callable[[SimulatedBay], tuple[int, Said]]


def newest_data_log(simulated: SimulatedBay) -> tuple[int, Said]:
    return 1, [("in_use", "journal", 0, 0)]


def newest_with_a_message(simulated: SimulatedBay) -> tuple[int, Said]:
    send(simulated, "orders", b"12345")
    return 1, [("pending_message", "0:orders", 1, 5), ("in_use", "journal", 0, 0)]


def one_stuck_message(simulated: SimulatedBay) -> tuple[int, Said]:
    send(simulated, "orders", b"12345", b"1")
    settle(simulated, "orders", 1)
    roll(simulated)
    return 1, [("pending_message", "0:orders", 1, 1)]


def two_queues(simulated: SimulatedBay) -> tuple[int, Said]:
    send(simulated, "orders", b"12345")
    send(simulated, "prices", b"1", b"22")
    roll(simulated)
    return 1, [("pending_message", "0:orders", 1, 5), ("pending_message", "0:prices", 2, 3)]


def several_priorities(simulated: SimulatedBay) -> tuple[int, Said]:
    for priority in (0, 4, 9):
        send(simulated, "orders", b"12345", priority=priority)
    roll(simulated)
    return 1, [("pending_message", "0:orders", 3, 15)]


def part_of_a_slice(simulated: SimulatedBay) -> tuple[int, Said]:
    send(simulated, "orders", *(b"x" * n for n in range(10)))
    roll(simulated)
    with simulated.queue("orders").subscribe(prefetch=0) as consumer:
        batch = consumer.take(10)
        consumer.ack([batch[0], *batch[3:8]])
    return 1, [("pending_message", "0:orders", 4, 1 + 2 + 8 + 9)]


def messages_over_several_data_logs(simulated: SimulatedBay) -> tuple[int, Said]:
    send(simulated, "orders", b"1", b"22")
    roll(simulated)
    send(simulated, "orders", b"333", b"4444")
    roll(simulated)
    return 2, [("pending_message", "0:orders", 2, 7)]


def in_flight(simulated: SimulatedBay) -> tuple[int, Said]:
    send(simulated, "orders", b"1", b"22")
    consumer = simulated.queue("orders").subscribe()
    consumer.take(1)[0].ack()
    consumer.take(1)
    roll(simulated)
    return 1, [("pending_message", "0:orders", 1, 2)]


def delayed_by_a_nack(simulated: SimulatedBay) -> tuple[int, Said]:
    send(simulated, "orders", b"1")
    consumer = simulated.queue("orders").subscribe()
    consumer.nack(consumer.take(1), delay=1000.0)
    roll(simulated)
    return 1, [("pending_message", "0:orders", 1, 1)]


def left_by_a_purge(simulated: SimulatedBay) -> tuple[int, Said]:
    send(simulated, "orders", b"1", b"22", b"333")
    simulated.queue("orders").subscribe().take(2)
    roll(simulated)
    assert simulated.queue("orders").purge() == 1
    return 1, [("pending_message", "0:orders", 2, 3)]


def acks_for_a_stuck_data_log(simulated: SimulatedBay) -> tuple[int, Said]:
    send(simulated, "orders", b"1", b"22")
    roll(simulated)
    settle(simulated, "orders", 1)
    roll(simulated)
    return 2, [("ack", "0:orders", 1, 2)]


def acks_for_the_sake_of_another_queue(simulated: SimulatedBay) -> tuple[int, Said]:
    """All of orders is acknowledged; what keeps data log 1 is the price in it."""
    send(simulated, "orders", b"1")
    send(simulated, "prices", b"22")
    roll(simulated)
    settle(simulated, "orders", 1)
    roll(simulated)
    return 2, [("ack", "0:prices", 1, 2)]


def chain_of_acks(simulated: SimulatedBay) -> tuple[int, Said]:
    """4 holds acks for 3, 3 for 2, 2 for 1, where one message is stuck."""
    send(simulated, "stuck", b"12345")
    send(simulated, "orders", b"1")
    for _ in range(2):
        roll(simulated)
        settle(simulated, "orders", 1)
        send(simulated, "orders", b"2")
    roll(simulated)
    settle(simulated, "orders", 1)
    roll(simulated)
    return 4, [("ack", "0:stuck", 1, 5)]


def acks_for_two_data_logs(simulated: SimulatedBay) -> tuple[int, Said]:
    send(simulated, "a", b"1", b"22")
    roll(simulated)
    send(simulated, "b", b"333", b"4444")
    roll(simulated)
    settle(simulated, "a", 1)
    settle(simulated, "b", 1)
    roll(simulated)
    return 3, [("ack", "0:a", 1, 2), ("ack", "0:b", 1, 4)]


def message_and_acks(simulated: SimulatedBay) -> tuple[int, Said]:
    send(simulated, "orders", b"1", b"22")
    roll(simulated)
    settle(simulated, "orders", 1)
    send(simulated, "prices", b"333")
    roll(simulated)
    return 2, [("pending_message", "0:prices", 1, 3), ("ack", "0:orders", 1, 2)]


def acks_for_data_logs_that_are_gone(simulated: SimulatedBay) -> tuple[int, Said]:
    send(simulated, "orders", b"1")
    roll(simulated)
    settle(simulated, "orders", 1)
    roll(simulated)
    return 2, []


def all_is_acknowledged(simulated: SimulatedBay) -> tuple[int, Said]:
    send(simulated, "orders", b"1", b"22")
    settle(simulated, "orders", 2)
    roll(simulated)
    return 1, []


def large_message(simulated: SimulatedBay) -> tuple[int, Said]:
    """Larger than a data log, and than what is ever read of it here."""
    send(simulated, "orders", bytes(200_000))
    roll(simulated)
    return newest(simulated) - 1, [("pending_message", "0:orders", 1, 200_000)]


def more_than_the_index_has_in_ram(simulated: SimulatedBay) -> tuple[int, Said]:
    send(simulated, "orders", b"12345")
    send(simulated, "prices", *[b""] * 30_000)
    roll(simulated)
    simulated.bay.checkpoint()
    return 1, [("pending_message", "0:orders", 1, 5), ("pending_message", "0:prices", 5_120, 0)]


def durable_subscriptions(simulated: SimulatedBay) -> tuple[int, Said]:
    topic = simulated.bay.topic("prices")
    for name in ("audit", "fast", "done"):
        topic.subscribe(durable=name).close()
    topic.send_many(Message(body) for body in (b"1", b"22", b"333"))
    for name, count in (("fast", 2), ("done", 3)):
        with topic.subscribe(durable=name) as consumer:
            consumer.ack(consumer.take(count))
    roll(simulated)
    return 1, [("pending_message", "1:prices/audit", 3, 6), ("pending_message", "1:prices/fast", 1, 3)]


def branch_that_is_prepared(simulated: SimulatedBay) -> tuple[int, Said]:
    transaction = simulated.bay.transaction()
    simulated.queue().send(b"1", transaction=transaction)
    transaction.prepare(b"branch-7")
    roll(simulated)
    return 1, [("transaction", "b'branch-7'", 0, 0)]


STAGES: tuple[Stage, ...] = (
    newest_data_log,
    newest_with_a_message,
    one_stuck_message,
    two_queues,
    several_priorities,
    part_of_a_slice,
    messages_over_several_data_logs,
    in_flight,
    delayed_by_a_nack,
    left_by_a_purge,
    acks_for_a_stuck_data_log,
    acks_for_the_sake_of_another_queue,
    chain_of_acks,
    acks_for_two_data_logs,
    message_and_acks,
    acks_for_data_logs_that_are_gone,
    all_is_acknowledged,
    large_message,
    more_than_the_index_has_in_ram,
    durable_subscriptions,
    branch_that_is_prepared,
)


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_staged_situation_has_its_true_causes_live_and_from_outside(stage: Stage) -> None:
    simulated = small_bay()
    data_log, expected = stage(simulated)
    explanation = simulated.bay.explain(data_log)
    assert said(explanation) == expected
    assert from_outside(simulated, data_log) == explanation
    assert f"data-{data_log}.log" in explanation.sentence
    assert all(cause.frees for cause in explanation.causes)
    assert bool(expected) == (data_log in simulated.bay.cleanup().remaining)


@pytest.mark.parametrize("stage", STAGES[2:], ids=lambda stage: stage.__name__)
def test_causes_are_the_same_after_a_kill_with_the_index_lost(stage: Stage) -> None:
    simulated = small_bay()
    data_log, expected = stage(simulated)
    simulated.disk = simulated.disk.crash_process()
    simulated.metadata = type(simulated.metadata)()
    simulated.open_again()
    if expected != [] or data_log in simulated.store.disk_use.sizes():
        assert said(simulated.bay.explain(data_log)) == expected


def test_age_is_that_of_the_message_sent_first() -> None:
    simulated = small_bay()
    for n in range(4):
        send(simulated, "orders", b"1", priority=n)
        simulated.clock.advance(1000.0)
    roll(simulated)
    assert simulated.bay.explain(1).causes[0].oldest_seconds == 4000.0
    settle(simulated, "orders", 3)
    assert simulated.bay.explain(1).causes[0].oldest_seconds == 4000.0
    assert "the first sent 66 minutes ago" in simulated.bay.explain(1).sentence


def test_sentences() -> None:
    simulated = small_bay()
    _, _ = acks_for_a_stuck_data_log(simulated)
    simulated.clock.advance(3 * 86_400)
    sentences = [simulated.bay.explain(n).sentence for n in (1, 2, 3)]
    assert sentences == [
        "data-1.log (307 bytes) remains because 0:orders has 1 message of 2 bytes pending in it, "
        "the first sent 3 days ago.",
        "data-2.log (260 bytes) remains because acks in it are needed as long as data-1.log remains, "
        "which holds 1 message of 2 bytes of 0:orders.",
        "data-3.log (164 bytes) remains because the journal is being written to it.",
    ]
    assert [cause.frees for n in (1, 2, 3) for cause in simulated.bay.explain(n).causes] == [
        "acknowledging that message, or queue('orders').purge()",
        "acknowledging that message in data-1.log, or queue('orders').purge()",
        "the next data log, once this is full",
    ]
    settle(simulated, "orders", 1)
    assert simulated.bay.explain(1) == Explanation(
        "Nothing needs data-1.log (307 bytes) any more: the next cleanup removes it.", ()
    )


def test_many_holders_are_all_causes_and_three_of_them_in_the_sentence() -> None:
    simulated = small_bay()
    for n in range(10):
        send(simulated, f"queue-{n}", b"1")
    roll(simulated)
    explanation = simulated.bay.explain(1)
    assert len(explanation.causes) == 10
    assert explanation.sentence.count("because") == 3 and explanation.sentence.endswith("for 7 more reasons.")


def test_checkpoint_without_room_keeps_what_would_be_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = small_bay()
    send(simulated, "orders", b"1")
    settle(simulated, "orders", 1)
    roll(simulated)

    def commit(*args: Any, **fields: Any) -> None:
        raise MetadataFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(simulated.metadata, "commit", commit)
        assert simulated.bay.cleanup().deleted == ()
        explanation = simulated.bay.explain(1)
    assert said(explanation) == [("in_use", "checkpoint", 0, 0)]
    assert "found no room" in explanation.sentence and explanation.causes[0].frees == "room for a checkpoint"
    assert simulated.bay.cleanup().deleted == (1,)


def test_transaction_is_named_and_what_is_acknowledged_for_it_stays() -> None:
    """What a transaction needs comes from outside: it is not in the index."""
    simulated = small_bay()
    send(simulated, "orders", b"1")
    roll(simulated)
    settle(simulated, "orders", 1)
    roll(simulated)
    store = simulated.store
    reasons = RetentionReasons(
        store.index,
        simulated.lock,
        store.destination_table,
        3,
        store.journal.open_data_logs.reader,
        transactions={"xid-7": {1}},
    )
    first, second = (explain_data_log(n, 100, reasons.of(n), 0) for n in (1, 2))
    assert said(first) == [("transaction", "xid-7", 0, 0)] and said(second) == [("ack", "xid-7", 0, 0)]
    assert first.sentence == (
        "data-1.log (100 bytes) remains because transaction xid-7 has messages in it and no outcome yet."
    )
    assert second.sentence == (
        "data-2.log (100 bytes) remains because acks in it are needed as long as data-1.log remains for xid-7."
    )
    assert {cause.frees for cause in (*first.causes, *second.causes)} == {
        "the commit or the rollback of transaction xid-7"
    }
    assert [reason.kind for found in reasons.all().values() for reason in found] == ["transaction", "ack", "in_use"]


def test_destination_without_a_name_is_its_number() -> None:
    """Its record went with a data log, and no state record tells: nothing that this library writes."""
    index = Index(account=Unlimited(), cache_bytes=1 << 20, read_block=lambda lane, block: b"")
    index.ensure_lane(7, 4).add_one(1, 64, 5, index.use(1))
    index.use(2)

    def reader(data_log: int) -> tuple[File, int]:
        raise FileNotFoundError

    reasons = RetentionReasons(index, OwnedLock(), {1: Destination(1, 0, "orders")}, 2, reader)
    [reason] = reasons.of(1)
    assert (reason.holder, reason.messages, reason.oldest_ms) == ("0:#7", 1, None)
    assert reasons.destinations() == {"0:orders": set(), "0:#7": {1}}


@pytest.mark.parametrize("subject", [0, 99, -1, 2**40])
def test_data_log_that_is_not_there_is_refused_with_those_that_are(subject: int) -> None:
    simulated = small_bay()
    for _ in range(2):
        send(simulated, "orders", b"1")
        roll(simulated)
    with pytest.raises(SettingsError, match=f"there is no data log {subject}: there are 1 to 3$"):
        simulated.bay.explain(subject)


@pytest.mark.parametrize("subject", [bytearray(b"1"), 1.0, True, object()])
def test_what_cannot_be_explained_is_refused(subject: Any) -> None:
    with pytest.raises(SettingsError, match="can be explained"):
        small_bay().bay.explain(subject)


def test_closed_store_explains_nothing() -> None:
    simulated = small_bay()
    simulated.bay.close()
    with pytest.raises(Closed):
        simulated.bay.explain()


# ------------------------------------------------------------------ the whole


def test_whole_says_who_keeps_most_of_the_disk_and_holds_memory() -> None:
    simulated = small_bay()
    for n in range(5):
        send(simulated, "dead", b"%d" % n)
        send(simulated, "orders", *[bytes(1000)] * 40)
        settle(simulated, "orders", 40)
        roll(simulated)
    simulated.clock.advance(60)
    explanation = simulated.bay.explain()
    dead = explanation.causes[0]
    assert (dead.reason, dead.holder, dead.messages, dead.bytes) == ("pending_message", "0:dead", 5, 5)
    assert dead.oldest_seconds == 60.0 and "5 data logs of " in dead.frees
    assert "; 0:dead keeps 5 data logs of " in explanation.sentence and "for 5 pending messages" in explanation.sentence
    memory = [cause for cause in explanation.causes if cause.reason == "memory"]
    held = simulated.bay.statistics().memory
    assert {cause.holder: cause.bytes for cause in memory} == {
        name: size for name, size in held.holders.items() if size
    }
    assert explanation.sentence.startswith("Memory: ")


def test_explaining_a_store_whose_limit_falls_lets_it_fall_no_further() -> None:
    simulated = SimulatedBay(memory_limit="8MiB")
    budget = simulated.budget
    holder = budget.holder("test")
    held = budget.free_bytes
    assert holder.reserve(held)
    before = budget.limit_bytes
    budget.resize(before // 2)
    holder.release(held)
    assert " of 8.0 MiB are held" in simulated.bay.explain().sentence
    assert budget.limit_bytes == before
    budget.approach_target()
    assert budget.limit_bytes == before // 2


def test_a_message_of_a_topic_counts_once_and_is_named_with_what_frees_it() -> None:
    simulated = small_bay()
    durable_subscriptions(simulated)
    whole = simulated.bay.explain()
    assert " for 3 pending messages of 6 bytes; 1:prices/audit keeps 1 data log" in whole.sentence
    frees = {cause.holder: cause.frees for cause in simulated.bay.explain(1).causes}
    assert frees == {
        "1:prices/audit": "acknowledging those messages, or topic('prices').unsubscribe('audit')",
        "1:prices/fast": "acknowledging that message, or topic('prices').unsubscribe('fast')",
    }
    simulated.bay.topic("prices").unsubscribe("audit")
    assert said(simulated.bay.explain(1)) == [
        ("pending_message", "1:prices/fast", 1, 3),
        ("pending_message", "1:prices", 2, 3),  # until the next checkpoint
    ]
    simulated.bay.checkpoint()
    assert said(simulated.bay.explain(1)) == [("pending_message", "1:prices/fast", 1, 3)]


def test_subscriptions_without_a_name_are_the_topics() -> None:
    simulated = small_bay()
    topic = simulated.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    with topic.subscribe() as one, topic.subscribe():
        topic.send_many(Message(b"x") for _ in range(3))
        one.ack(one.take(2))
        assert said(simulated.bay.explain(1))[:2] == [
            ("pending_message", "1:prices/audit", 3, 3),
            ("pending_message", "1:prices", 3, 3),
        ]
        assert " for 3 pending messages of 3 bytes" in simulated.bay.explain().sentence


def test_data_logs_kept_for_their_acks_count_for_whom_they_are_kept() -> None:
    simulated = small_bay()
    data_log, _ = chain_of_acks(simulated)
    cause = simulated.bay.explain().causes[0]
    assert cause.holder == "0:stuck" and "4 data logs" in cause.frees and data_log == 4


def test_whole_counts_what_the_next_cleanup_removes() -> None:
    simulated = small_bay()
    all_is_acknowledged(simulated)
    assert "1 data log of 359 bytes is needed by nothing any more" in simulated.bay.explain().sentence
    simulated.bay.cleanup()
    assert "needed by nothing" not in simulated.bay.explain().sentence


# ------------------------------------------------------------------ random stores


@pytest.mark.parametrize("seed", range(25))
def test_live_and_from_outside_agree_on_random_stores(seed: int) -> None:
    random = Random(seed)
    simulated = small_bay(seed=seed, sync=random.choice(("always", "never")))
    names = ["orders", "prices", "audit"][: random.randint(1, 3)]
    consumers: dict[str, Consumer] = {}
    for _ in range(60):
        name = random.choice(names)
        queue = simulated.queue(name)
        action = random.choice(("send", "send", "ack", "ack", "roll", "purge", "cleanup", "reopen", "checkpoint"))
        if action == "send":
            count = random.choice((1, 3, 40, 700))
            send(simulated, name, *(bytes(random.randrange(200)) for _ in range(count)), priority=random.choice((4, 7)))
        elif action == "ack":
            consumer = consumers.setdefault(name, queue.subscribe(prefetch=0))
            batch = consumer.take(random.choice((1, 50, 1000)))
            consumer.ack(random.sample(batch, int(len(batch) * random.choice((0.1, 0.9, 1.0)))))
        elif action == "roll":
            roll(simulated)
        elif action == "purge" and random.random() < 0.3:
            queue.purge()
        elif action == "cleanup":
            simulated.bay.cleanup()
        elif action == "checkpoint":
            simulated.bay.checkpoint()
        elif action == "reopen" and random.random() < 0.3:
            simulated.reopen()
            consumers.clear()
        simulated.clock.advance(random.choice((0.0, 0.0, 10.0)))
    seen = open_read_only(simulated.disk)
    now_ms = simulated.clock.time_ms()
    sizes = simulated.store.disk_use.sizes()
    assert seen.sizes == sizes
    live = simulated.store.data_log_retention.reasons()
    assert live.all() == seen.retention_reasons.all()
    assert explain_whole(sizes, live.all(), now_ms) == explain_whole(seen.sizes, seen.retention_reasons.all(), now_ms)
    for data_log in sizes:
        assert from_outside(simulated, data_log) == simulated.bay.explain(data_log)
    simulated.bay.checkpoint()
    idle = [data_log for data_log in sizes if not live.of(data_log)]
    assert list(simulated.store.cleanup.delete_data_logs().deleted) == idle


# ------------------------------------------------------------------ the logger


def test_logger_says_at_debug_how_cleanup_decides(caplog: pytest.LogCaptureFixture) -> None:
    simulated = small_bay()
    send(simulated, "J", b"1")
    roll(simulated)
    send(simulated, "orders", b"1")
    settle(simulated, "orders", 1)
    roll(simulated)
    send(simulated, "E", b"1")
    roll(simulated)
    send(simulated, "orders", b"1")
    logging.getLogger(LOGGER).setLevel(logging.DEBUG)  # on a live process, and this logger alone
    try:
        simulated.bay.cleanup()
    finally:
        logging.getLogger(LOGGER).setLevel(logging.NOTSET)
    place = caplog.messages[0].split()[2].rstrip(",")
    assert caplog.messages == [
        f"Last update: {place}, full gc candidates set: [1, 2, 3, 4]",
        f"gc candidates after first tx:{place}, [1, 2, 3]",
        "gc candidates after dest:0:J, [2, 3]",
        "gc candidates after dest:0:orders, [2, 3]",
        "gc candidates after dest:0:E, [2]",
        "gc candidates: [2]",
        "Cleanup removing the data logs: [2]",
    ]
    assert {record.name for record in caplog.records} == {LOGGER}


def test_nothing_is_looked_up_for_a_logger_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = small_bay()
    one_stuck_message(simulated)

    def survey(*args: object) -> None:
        raise AssertionError

    monkeypatch.setattr(RetentionReasons, "_survey", survey)
    simulated.bay.cleanup()
