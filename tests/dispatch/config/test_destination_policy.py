"""DestinationPolicy: which pattern matches, which of several decides, and what a policy does."""

from __future__ import annotations

import itertools
import random
from dataclasses import fields, replace
from decimal import Decimal

import pytest
from reference import policies_table
from simulated_bay import SimulatedBay

from forebay import DestinationPolicy, Message, Settings, SettingsError
from forebay.dispatch.config.policies import Policies
from forebay.dispatch.config.policy import matches, policy_for
from forebay.dispatch.config.redelivery_delays import RedeliveryRule

MATCHES = [
    ("orders", "orders", True),
    ("orders", "orders.eu", False),
    ("orders.*", "orders.eu", True),
    ("orders.*", "orders", False),
    ("orders.*", "orders.eu.late", False),
    ("orders.*.late", "orders.eu.late", True),
    ("*", "orders", True),
    ("*", "orders.eu", False),
    ("orders.>", "orders", True),
    ("orders.>", "orders.eu", True),
    ("orders.>", "orders.eu.late", True),
    ("orders.>", "ordersx", False),
    ("orders.eu.>", "orders", False),
    ("*.eu.>", "orders.eu.late", True),
    (">", "orders", True),
    (">", "orders.eu.late", True),
    ("a..b", "a..b", True),
    ("a.*.b", "a..b", True),
    ("Orders", "orders", False),
]


@pytest.mark.parametrize(("pattern", "name", "expected"), MATCHES)
def test_a_star_is_one_word_and_a_greater_is_the_rest_which_may_be_nothing(
    pattern: str, name: str, expected: bool
) -> None:
    assert matches(pattern, name) is expected


def test_the_most_specific_pattern_decides_whatever_the_order() -> None:
    ranked = ["a.b", "a.b.>", "a.*", "a.>", "*.b", "*.*", "*.>", ">"]  # all match a.b
    chosen = random.Random(3)
    for first, second in itertools.combinations(ranked, 2):
        for pair in ((first, second), (second, first)):
            policies = {pattern: DestinationPolicy(prefetch=ranked.index(pattern)) for pattern in pair}
            assert policy_for(policies, "a.b").prefetch == ranked.index(first), pair
    for _ in range(50):
        some = chosen.sample(ranked, chosen.randrange(1, len(ranked)))
        policies = {pattern: DestinationPolicy(prefetch=ranked.index(pattern)) for pattern in some}
        assert policy_for(policies, "a.b").prefetch == min(map(ranked.index, some))


def test_the_table_of_policies_has_each_field() -> None:
    """tests/house/test_docs.py checks that the documentation has this table."""
    assert len(policies_table().splitlines()) == 2 + sum(entry.init for entry in fields(DestinationPolicy))


def test_a_destination_that_no_pattern_matches_has_the_defaults() -> None:
    assert policy_for({"a": DestinationPolicy(prefetch=1)}, "b") == DestinationPolicy()
    assert policy_for({}, "b") == DestinationPolicy()


def test_policies_resolve_a_name_as_often_as_asked() -> None:
    orders = DestinationPolicy(prefetch=7)
    policies = Policies({"orders.*": orders})
    for _ in range(2):
        assert policies.of("orders.eu") is orders
        assert policies.of("prices") == DestinationPolicy()


def test_dead_letter_queue_that_is_full_refuses_instead_of_dead_lettering() -> None:
    limited = DestinationPolicy(max_messages=5, when_full="dead_letter")
    policies = Policies({">": limited})
    assert policies.of("orders") is limited
    assert policies.of("DLQ.orders") == replace(limited, when_full="fail")


def test_redelivery_rule_follows_the_policy_and_never_ends_in_a_dead_letter_queue() -> None:
    again = DestinationPolicy(max_attempts=3, redelivery_delay_seconds=1.5, redelivery_backoff=2.0)
    grave = DestinationPolicy(max_attempts=2, dead_letter_queue="grave")
    discarded = DestinationPolicy(max_attempts=4, dead_letter_queue=None)
    policies = Policies({"orders": again, "prices": grave, "logs": discarded, "DLQ.logs": discarded})
    assert policies.redelivery("orders") == RedeliveryRule(3, 1.5, 2.0, "DLQ.orders")
    assert policies.redelivery("prices") == RedeliveryRule(2, 0.0, 1.0, "grave")
    assert policies.redelivery("logs") == RedeliveryRule(4, 0.0, 1.0, None)
    assert policies.redelivery("other") == RedeliveryRule(6, 0.0, 1.0, "DLQ.other")
    assert policies.redelivery("grave").max_attempts is None
    assert policies.redelivery("DLQ.other").max_attempts is None
    assert policies.redelivery("DLQ.logs").max_attempts == 4  # it sends none on
    assert [policies.is_dead_letter_queue(name) for name in ("grave", "DLQ.orders", "orders")] == [True, True, False]


def test_expired_messages_go_to_the_dead_letter_queue_where_the_policy_says_so() -> None:
    kept = DestinationPolicy(expired_to_dead_letter=True)
    policies = Policies({"orders": kept, "DLQ.>": kept, "logs": replace(kept, dead_letter_queue=None)})
    assert policies.queue_for_expired("orders") == "DLQ.orders"
    assert [policies.queue_for_expired(name) for name in ("DLQ.orders", "logs", "other")] == [None, None, None]


def test_policies_cannot_be_changed_behind_the_settings() -> None:
    given = {"a": DestinationPolicy(prefetch=1)}
    settings = Settings(policies=given)
    given["a"] = DestinationPolicy()
    assert settings.policies["a"].prefetch == 1
    with pytest.raises(TypeError):
        settings.policies["a"] = DestinationPolicy()  # type: ignore[index]
    hash(settings)


@pytest.mark.parametrize("prefetch", [-1, 1_000_001, 1.0, True, None])
def test_a_prefetch_that_cannot_be_is_refused_with_the_policy(prefetch: object) -> None:
    with pytest.raises(SettingsError, match="^prefetch="):
        DestinationPolicy(prefetch=prefetch)  # type: ignore[arg-type]


def test_prefetch_of_a_policy_is_what_a_consumer_has_that_does_not_say_it() -> None:
    bay = SimulatedBay(policies={"orders.>": DestinationPolicy(prefetch=2)})
    for name, prefetch in (("orders.eu", 2), ("prices", 1000)):
        queue = bay.queue(name)
        queue.send_many([Message(b"1 kg tea")] * 4)
        with queue.subscribe() as consumer:
            assert consumer.prefetch == prefetch
            assert len(consumer.take(4)) == min(prefetch, 4)
        with queue.subscribe(prefetch=3) as consumer:
            assert consumer.prefetch == 3


@pytest.mark.parametrize(
    ("name", "value", "bounds"),
    [
        ("max_messages", 0, "an int from 1 on, or None"),
        ("subscriber_max_messages", 1.5, "an int from 1 on, or None"),
        ("block_timeout_seconds", -1, "seconds from 0 to 1,000,000, or None"),
        ("slow_consumer_seconds", 0, "seconds above 0 and up to 1,000,000, or None"),
        ("inactive_seconds", 0.5, "seconds from 1 to 1,000,000, or None"),
        ("ack_deadline_seconds", 0, "seconds from 1 to 1,000,000, or None"),
        ("max_attempts", 0, "an int from 1 to 65,535, or None"),
    ],
)
def test_refusal_says_exactly_what_the_field_may_be(name: str, value: float, bounds: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{name}={value} must be {bounds}$"):
        DestinationPolicy(**{name: value})  # type: ignore[arg-type]


def test_subscribe_says_that_no_deadline_is_written_as_zero() -> None:
    orders = SimulatedBay().queue()
    for seconds in (0.5, False, Decimal(0)):
        with pytest.raises(SettingsError, match=r"must be seconds from 1 to 1,000,000, or 0 for none$"):
            orders.subscribe(ack_deadline_seconds=seconds)  # type: ignore[arg-type]
    assert orders.subscribe(ack_deadline_seconds=0.0).ack_deadline_seconds is None
