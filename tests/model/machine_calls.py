"""The calls of the state machine: names and arguments that it chooses from, and the messages made of them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st
from plain_model import Entry, Letter, Rule, own_id

from forebay import DestinationPolicy, Message
from forebay.store.message import HeaderValue
from forebay.testing import ManualClock

QUEUES = ("orders", "parcels", "prices", "logs", "idle")
TOPICS = ("prices", "news", "ticks.a", "ticks.b", "tape", "idle")
PATTERNED = "ticks."
PATTERNS = ("ticks.*", "ticks.>")
"""The patterns of topics whose names begin with PATTERNED. Their policies count no attempts: the topics of one pattern
may have different policies.
"""
SUBSCRIPTIONS = {"all": None, "late": None, "some": "kind = 0", "none": "kind > 2"}


def policy(**fields: Any) -> DestinationPolicy:
    """Return a policy under which expired messages leave as soon as time passes, and no consumer is slow."""
    return DestinationPolicy(expiry_sweep_seconds=0.1, slow_consumer_seconds=None, **fields)


POLICIES = {
    "orders": policy(max_attempts=4, redelivery_delay_seconds=3),
    "parcels": policy(max_attempts=4, redelivery_delay_seconds=2, redelivery_backoff=2),
    "prices": policy(max_attempts=2, expired_to_dead_letter=True),
    "logs": policy(max_attempts=2, dead_letter_queue=None),
    "ticks.*": policy(max_attempts=None, retain_seconds=6),
    "tape": policy(max_attempts=3, retain_bytes="40KiB", dead_letter_queue=None),
    "idle": policy(max_attempts=None, dead_letter_queue=None, inactive_seconds=5),
    ">": policy(max_attempts=None),
}
QUEUE_RULES = {
    "orders": Rule(4, 3_000, dead_letters="DLQ.orders"),
    "parcels": Rule(4, 2_000, 2, dead_letters="DLQ.parcels"),
    "prices": Rule(2, dead_letters="DLQ.prices", keeps_expired=True),
    "logs": Rule(2),
    "idle": Rule(inactive_ms=5_000),
}
TOPIC_RULES = {
    "prices": Rule(2, dead_letters="DLQ.prices"),
    "ticks.a": Rule(retain_ms=6_000),
    "ticks.b": Rule(retain_ms=6_000),
    "tape": Rule(3, retain_bytes=40 * 1024),
    "idle": Rule(inactive_ms=5_000),
}
"""The policies as rules of the model."""
IDLE = ("idle",)
"""The destinations that are deleted when nobody uses them."""
LOOK_SECONDS = 1.0
"""The time between two looks for passed deadlines and inactive destinations."""
FILE_LENGTHS = {"64KiB": 64 * 1024, "1MiB": 1024 * 1024}
GROUPED = ("parcels",)
"""The queues whose messages have groups, until they are moved."""
EXPIRING = ("orders", "parcels", "news", "ticks.a")
"""The destinations whose messages expire. Destinations with few attempts are left out: a message there that has expired
and had its last attempt may leave as either.
"""
REJECTING = (*QUEUE_RULES, *(rule.dead_letters for rule in QUEUE_RULES.values() if rule.dead_letters))
"""The queues for which the model knows where rejected messages go."""
RANKED = ("parcels", "logs")
"""The queues whose consumers have priorities."""
EXCLUSIVE = ("logs",)
"""The queues that have exclusive consumers."""
RANKED_SUBSCRIPTIONS = ("late",)
EXCLUSIVE_SUBSCRIPTIONS = ("late", "some")
"""The same for subscriptions of topics."""
ONE_PRIORITY = ("tape",)
"""The topics whose messages have one priority. With several it is not defined which messages are the newest bytes."""
HEADER_BYTES_MAX = 256
"""Most bytes of a message's headers, as the library counts them."""
START_MS = ManualClock().time_ms()
EVERYTHING = 1_000_000
ENTRIES_MAX = 250
BYTES_MAX = 6 << 20
FILLER = Random(5).randbytes(256 * 1024)
DIGITS = 8
ROUNDS_MAX = 20
"""Most takes that find nothing although a message is there: each reads a part, and the background reads the rest."""
STEPS_UNTIL_COMPARED = 10
SELDOM = 5
"""A call that empties a queue is made for one pick in so many."""

picks = st.integers(0, 239)
"""A number that chooses one of the existing objects, modulo how many there are."""
deadlines = st.sampled_from((0, 0, 0, 0, 2, 8))
"""Seconds that a consumer has to settle a delivery; 0: there is no deadline."""
delays = st.sampled_from((0, 0, 0, 0, 500, 1_500, 8_000))
shapes = st.tuples(
    st.sampled_from((0, 40, 40, 3_000, 50_000)),
    st.integers(0, 2),
    st.sampled_from((4, 4, 4, 0, 9)),
    st.sampled_from((True, True, False)),
    st.sampled_from((None, None, "a", "b", "c")),
    delays,
    st.sampled_from((*[None] * 8, 500, 5_000)),
)
"""Size, kind, priority, is_persistent, group, delay in ms and lifetime in ms of a message."""
Shape = tuple[int, int, int, bool, str | None, int, int | None]

CALLS: dict[str, tuple[st.SearchStrategy[Any], ...]] = {}
"""By name of a method, the strategies of its arguments."""
CHOICES: list[str] = []
"""The names of these methods, each as often as its weight says."""
ALWAYS = {"send", "send_many", "publish", "subscribe", "subscribe_topic", "take", "ack", "wait"}
"""The methods that every example calls. Each example leaves out some of the others, and calls the rest more often."""

Method = TypeVar("Method", bound=Callable[..., None])


def call(*arguments: st.SearchStrategy[Any], weight: int = 1) -> Callable[[Method], Method]:
    """Mark a method that the machine may call, with arguments drawn from these strategies."""

    def register(method: Method) -> Method:
        CALLS[method.__name__] = arguments
        CHOICES.extend([method.__name__] * weight)
        return method

    return register


@st.composite
def calls(draw: st.DrawFn) -> tuple[Any, ...]:
    name = draw(st.sampled_from(CHOICES))
    return name, *map(draw, CALLS[name])


def body_of(letter: Letter) -> bytes:
    """Return the body of a letter. A letter of size -1 has none."""
    return b"" if letter.size < 0 else b"%0*d" % (DIGITS, letter.number) + FILLER[letter.number % 1000 :][: letter.size]


def message_of(letter: Letter, now_ms: int) -> Message:
    return Message(
        body_of(letter),
        headers_of(letter),
        letter.priority,
        own_id(letter.number),
        letter.is_persistent,
        letter.group,
        None if letter.expires_at_ms is None else (letter.expires_at_ms - now_ms) / 1000,
        letter.delay_ms / 1000,
    )


def headers_of(letter: Letter) -> dict[str, HeaderValue]:
    """Return the headers of a letter. A header has the number of a message without a body."""
    return {"kind": letter.kind} if letter.size >= 0 else {"kind": letter.kind, "number": letter.number}


def number_of(body: bytes, headers: dict[str, HeaderValue]) -> int:
    return int(body[:DIGITS] or str(headers["number"]))


def identity(number: int, headers: dict[str, HeaderValue]) -> tuple[Any, ...]:
    return number, *map(headers.get, ("dead_letter_from", "dead_letter_subscription", "dead_letter_reason"))


def identity_of(entry: Entry) -> tuple[Any, ...]:
    return entry.letter.number, *(entry.letter.stamp or (None, None, None))[:3]


def seen(message: Message) -> tuple[Any, ...]:
    headers = dict(message.headers or {})
    return identity(number_of(message.body, headers), headers)
