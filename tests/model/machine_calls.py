"""What the state machine may call: names and arguments to choose from, and messages made of what was chosen."""

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
"""Of topics that begin so. Their policies count no attempts, because they need not be the same for all."""
SUBSCRIPTIONS = {"all": None, "late": None, "some": "kind = 0", "none": "kind > 2"}


def policy(**fields: Any) -> DestinationPolicy:
    """What has expired leaves as soon as time has passed, and nobody is slow."""
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
"""The policies once more, in the words of the model."""
IDLE = ("idle",)
"""Which destinations go when nobody uses them."""
LOOK_SECONDS = 1.0
"""So often somebody looks whether a deadline has passed, or a destination may go."""
FILE_LENGTHS = {"64KiB": 64 * 1024, "1MiB": 1024 * 1024}
GROUPED = ("parcels",)
"""Where messages have groups, until they are moved."""
EXPIRING = ("orders", "parcels", "news", "ticks.a")
"""Where messages expire: not where they are soon dead, for what is both may leave as either."""
REJECTING = (*QUEUE_RULES, *(rule.dead_letters for rule in QUEUE_RULES.values() if rule.dead_letters))
"""Where the model knows what becomes of what a consumer rejects."""
RANKED = ("parcels", "logs")
"""Where consumers have priorities."""
EXCLUSIVE = ("logs",)
"""Where consumers want to be the only one."""
RANKED_SUBSCRIPTIONS = ("late",)
EXCLUSIVE_SUBSCRIPTIONS = ("late", "some")
"""The same for subscriptions of topics."""
ONE_PRIORITY = ("tape",)
"""Where more than one would leave open which of them are the newest bytes."""
HEADER_BYTES_MAX = 256
"""Of the headers of a message, as the library counts them."""
START_MS = ManualClock().time_ms()
EVERYTHING = 1_000_000
ENTRIES_MAX = 250
BYTES_MAX = 6 << 20
FILLER = Random(5).randbytes(256 * 1024)
DIGITS = 8
ROUNDS_MAX = 20
"""Of takes that find nothing though something is there: each reads a part, and leaves the rest to the background."""
STEPS_UNTIL_COMPARED = 10
SELDOM = 5
"""Of so many picks one does it, where it empties a queue."""

picks = st.integers(0, 239)
"""Which of those that there are."""
deadlines = st.sampled_from((0, 0, 0, 0, 2, 8))
"""Seconds in which a consumer settles; 0: it has all time."""
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
"""By name of a method, what its arguments are chosen from."""
CHOICES: list[str] = []
"""Those names, each as often as it is to be chosen."""
ALWAYS = {"send", "send_many", "publish", "subscribe", "subscribe_topic", "take", "ack", "wait"}
"""What every example does. Of the rest each leaves something out, so that what is done is done more."""

Method = TypeVar("Method", bound=Callable[..., None])


def call(*arguments: st.SearchStrategy[Any], weight: int = 1) -> Callable[[Method], Method]:
    """The machine may call this method with such arguments."""

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
    """size: -1 has no body."""
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
    """What has no body is known by a header."""
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
