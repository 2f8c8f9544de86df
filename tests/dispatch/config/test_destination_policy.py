"""DestinationPolicy: which pattern matches, which of several decides, and what a policy does."""

from __future__ import annotations

import itertools
import random
from dataclasses import fields
from pathlib import Path

import pytest
from simulated_bay import SimulatedBay

from forebay import DestinationPolicy, Message, Settings, SettingsError
from forebay.dispatch.config.policy import matches, policy_for
from forebay.dispatch.config.settings import policies_table

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


def test_readme_has_the_table_of_fields() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    assert f"<!-- policies -->\n{policies_table()}\n<!-- /policies -->" in readme
    assert len(policies_table().splitlines()) == 2 + sum(entry.init for entry in fields(DestinationPolicy))


def test_a_destination_that_no_pattern_matches_has_the_defaults() -> None:
    assert policy_for({"a": DestinationPolicy(prefetch=1)}, "b") == DestinationPolicy()
    assert policy_for({}, "b") == DestinationPolicy()


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
