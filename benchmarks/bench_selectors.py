"""Benchmarks of selectors: compile, evaluate, and take one message in a hundred from a queue."""

from __future__ import annotations

from itertools import count

import pytest

import forebay
from forebay.benchmarks.calibration import AgainstFloor
from forebay.dispatch.selectors.selector import Selector, compile_selector
from forebay.store.message import HeaderValue

VALUES: dict[str, HeaderValue] = {"region": "eu", "price": 17, "kind": "order-4711"}
ASKED = 5000
COMPILED = 200
TEXTS = {
    "equal": "region = 'eu'",
    "compound": "region IN ('eu', 'us') AND price BETWEEN 10 AND 20",
    "like": "kind LIKE 'order-%7_1' OR price * 2 > 100",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_matches(against_floor: AgainstFloor, text: str) -> None:
    def ask(selector: Selector) -> None:
        for _ in range(ASKED):
            selector.matches(VALUES)

    against_floor(ASKED, lambda: compile_selector(text), ask)


def test_compiles(against_floor: AgainstFloor) -> None:
    """Compile each text only once, because compiled selectors are cached."""
    numbers = count()

    def compile_them(texts: list[str]) -> None:
        for text in texts:
            compile_selector(text)

    def new_texts() -> list[str]:
        return [f"region = 'eu' AND price > {next(numbers)}" for _ in range(COMPILED)]

    against_floor(COMPILED, new_texts, compile_them)


def test_one_in_a_hundred_is_found(against_floor: AgainstFloor, bay: forebay.Forebay) -> None:
    numbers = count()

    def filled() -> forebay.Queue:
        queue = bay.queue(f"bench-{next(numbers)}")
        queue.send_many(
            forebay.Message(b"body", headers={"region": "eu" if not number % 100 else "us"}) for number in range(ASKED)
        )
        return queue

    def take(queue: forebay.Queue) -> None:
        with queue.subscribe(selector=TEXTS["equal"], prefetch=0) as consumer:
            for _ in range(ASKED // 100):
                [delivery] = consumer.take(1, timeout=None)
                consumer.ack(delivery)

    against_floor(ASKED, filled, take)
