"""Explanations of topics and of prepared transactions, and that what is counted agrees with its noun."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulated_bay import SimulatedBay

import forebay
from forebay import Explanation, Message, SettingsError
from forebay.__main__ import main


def said(explanation: Explanation) -> list[tuple[str, str, int]]:
    return [(cause.reason, cause.holder, cause.messages) for cause in explanation.causes]


def lagging_topic() -> SimulatedBay:
    """A topic with a subscription that is offline, one that holds what it took, one without a name, and a good one."""
    store = SimulatedBay()
    topic = store.bay.topic("prices")
    for name in ("audit", "eu", "good"):
        topic.subscribe(durable=name).close()
    topic.send(b"12345")
    eu, good, nameless = topic.subscribe(durable="eu"), topic.subscribe(durable="good"), topic.subscribe()
    topic.send_many(Message(b"12345") for _ in range(4))
    eu.ack(eu.take(2))
    eu.take(1)
    good.ack(good.take(10))
    nameless.ack(nameless.take(3))
    return store


def test_topic_names_who_lags_most_first_and_what_would_free_it() -> None:
    store = lagging_topic()
    found = store.bay.explain("prices")
    assert said(found) == [
        ("subscription", "1:prices/audit", 5),
        ("subscription", "1:prices/eu", 3),
        ("subscription", "1:prices", 1),
    ]
    assert found.sentence == (
        "1:prices has 5 messages of 25 bytes for its 4 subscriptions: 1:prices/audit lacks the acks of 5 messages, and "
        "has no consumer; 1:prices/eu lacks the acks of 3 messages, and has 1 of them in flight; a subscription "
        "without a name lacks the acks of 1 message, and has 0 of them in flight."
    )
    assert [cause.frees for cause in found.causes] == [
        "acknowledging those messages, or topic('prices').unsubscribe('audit')",
        "acknowledging those messages, or topic('prices').unsubscribe('eu')",
        "acknowledging that message, or the close of its consumer",
    ]
    assert found == store.bay.explain(store.bay.topic("prices"))
    store.bay.topic("prices").unsubscribe("audit")
    assert "1:prices/audit" not in store.bay.explain("prices").sentence


def test_topic_without_subscriptions_or_without_messages_says_so() -> None:
    store = SimulatedBay()
    topic = store.bay.topic("prices")
    assert store.bay.explain("prices") == Explanation(
        "1:prices has no subscription: what is sent to it is for nobody, and is not stored.", ()
    )
    topic.subscribe(durable="a").close()
    assert store.bay.explain("prices").sentence == (
        "1:prices has no messages: its 1 subscription has acknowledged everything."
    )
    topic.subscribe(durable="b").close()
    assert "its 2 subscriptions have acknowledged everything" in store.bay.explain("prices").sentence


def test_of_many_subscriptions_three_are_in_the_sentence_and_all_are_causes() -> None:
    store = SimulatedBay()
    topic = store.bay.topic("prices")
    for number in range(5):
        topic.subscribe(durable=f"s{number}").close()
    topic.send(b"")
    found = store.bay.explain("prices")
    assert len(found.causes) == 5
    assert "; 2 more subscriptions lag less." in found.sentence


def test_a_queue_comes_before_a_topic_of_the_same_name_and_both_before_a_subscription() -> None:
    store = SimulatedBay()
    store.bay.topic("a").subscribe(durable="b").close()
    assert store.bay.explain("a/b").sentence.startswith("1:a/b")
    store.bay.topic("a/b")
    assert store.bay.explain("a/b").sentence.startswith("1:a/b has no subscription")
    store.queue("a/b")
    assert store.bay.explain("a/b").sentence.startswith("0:a/b")


def test_topic_of_another_store_is_refused() -> None:
    with pytest.raises(SettingsError, match="the topic belongs to another store"):
        SimulatedBay().bay.explain(SimulatedBay().bay.topic("prices"))


@pytest.mark.parametrize("is_recovered", [False, True])
def test_prepared_transaction_says_what_it_decides_about(is_recovered: bool) -> None:
    store = SimulatedBay()
    store.queue("orders").send_many(Message(b"x") for _ in range(3))
    consumer = store.queue("orders").subscribe()
    transaction = store.bay.transaction()
    store.queue("invoices").send(b"y", transaction=transaction)
    consumer.ack(consumer.take(2), transaction=transaction)
    transaction.prepare(b"branch 7")
    if is_recovered:
        store.crash()
    found = store.bay.explain(b"branch 7")
    assert sorted(said(found)) == [("transaction", "0:invoices", 1), ("transaction", "0:orders", 2)]
    start = "Transaction b'branch 7' is prepared and waits for its outcome, with "
    assert found.sentence.startswith(start)
    assert set(found.sentence.removeprefix(start).removesuffix(".").split(" and ")) == {
        "1 message sent to 0:invoices",
        "2 messages of 0:orders acknowledged",
    }
    assert {cause.frees for cause in found.causes} == {"the commit or the rollback of transaction b'branch 7'"}
    store.bay.prepared()[0].rollback()
    with pytest.raises(SettingsError, match="no prepared transaction b'branch 7'"):
        store.bay.explain(b"branch 7")


# ------------------------------------------------------------------ counts and nouns


def pending(store: SimulatedBay, count: int) -> object:
    store.queue().send_many(Message(b"x") for _ in range(count))
    return "orders"


def in_flight(store: SimulatedBay, count: int) -> object:
    pending(store, count)
    store.queue().subscribe().take(max(count, 1))
    return "orders"


def unmatched(store: SimulatedBay, count: int) -> object:
    pending(store, count)
    consumer = store.queue().subscribe(selector="a = 1")
    consumer.take(1)
    return "orders"


def delayed(store: SimulatedBay, count: int) -> object:
    pending(store, count)
    consumer = store.queue().subscribe()
    for delivery in consumer.take(max(count, 1)):
        consumer.nack([delivery], delay=60.0)
    return "orders"


def due_later(store: SimulatedBay, count: int) -> object:
    store.queue().send_many(Message(b"x", delay=60.0) for _ in range(count))
    return "orders"


def used_up_prefetch(store: SimulatedBay, count: int) -> object:
    pending(store, count)
    consumer = store.queue().subscribe(prefetch=max(count, 1))
    consumer.take(max(count, 1))
    return consumer


def ready(store: SimulatedBay, count: int) -> object:
    consumer = store.queue().subscribe()
    pending(store, count)
    return consumer


def paused(store: SimulatedBay, count: int) -> object:
    store.queue().subscribe()
    pending(store, count)
    store.queue().pause()
    return "orders"


def of_a_topic(store: SimulatedBay, count: int) -> object:
    topic = store.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    topic.send_many(Message(b"x") for _ in range(count))
    return "prices"


def of_a_subscription(store: SimulatedBay, count: int) -> object:
    of_a_topic(store, count)
    return "prices/audit"


def data_log(store: SimulatedBay, count: int) -> object:
    pending(store, count)
    return 1


def whole(store: SimulatedBay, count: int) -> object:
    """Over several data logs, each with a part of the messages."""
    for number in range(count):
        store.queue().send(b"x")
        if number == 0:
            store.reopen()
    return None


STAGES: list[Callable[[SimulatedBay, int], object]] = [
    *(pending, in_flight, unmatched, delayed, due_later, used_up_prefetch, ready, paused),
    *(of_a_topic, of_a_subscription, data_log, whole),
]
SINGULAR = r"message|subscription|consumer|data log|byte|second|send"


def disagreements(text: str) -> list[str]:
    """Return where a count and its noun or its verb do not agree."""
    wrong = re.findall(rf"(?<![\d.,])1 (?:other |more |pending |blocked )?(?:{SINGULAR})s\b", text)
    wrong += re.findall(rf"\b(?:0|[2-9]|\d[\d,.]*\d) (?:other |more |pending |blocked )?(?:{SINGULAR})\b(?!s)", text)
    wrong += re.findall(r"(?<![\d.,])1 message (?:are|wait|have)\b", text)
    wrong += re.findall(r"(?:\b(?:0|[2-9])|\d\d) messages (?:is|waits|has)\b", text)
    return wrong


@pytest.mark.parametrize("count", [0, 1, 2, 1490])
@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: str(stage.__name__))
def test_each_count_agrees_with_its_noun(stage: Callable[[SimulatedBay, int], object], count: int) -> None:
    store = SimulatedBay()
    subject: Any = stage(store, count)
    found = store.bay.explain(subject)
    assert disagreements(found.sentence) == []
    for cause in found.causes:
        assert disagreements(cause.frees) == []
        one = re.search(r"\bthat message\b|\bit back\b|matches it\b", cause.frees)
        many = re.search(r"\bthose messages\b|\bthem back\b|matches them\b", cause.frees)
        assert (one is None or cause.messages == 1) and (many is None or cause.messages != 1), cause
    if stage in (whole, data_log, of_a_topic) and count:
        assert any("acknowledging" in cause.frees for cause in found.causes)


def test_the_words_that_disagree_are_found() -> None:
    assert disagreements("1 messages, 2 message, 1 message wait, 1,490 messages is") != []
    assert disagreements("1 message waits; 21 messages wait; 1.0 KiB; 2 consumers; 1,001 messages") == []


def test_a_line_of_the_command_counts_one_message_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with forebay.open(tmp_path, memory_limit="8MiB", sync="never", background=False) as bay:
        bay.queue("orders").send(b"x")
    assert main(["explain", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "0:orders: 1 message," in printed and disagreements(printed) == []
