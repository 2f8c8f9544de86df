"""DestinationPolicy: settings for destinations whose names match a pattern, and how names are matched.

A pattern is a destination's name in words separated by ".". In it "*" stands for any one word, and ">" as the last
word for the rest, which may be nothing. Of the patterns that match a name the most specific one decides alone: policies
are not mixed. Nothing here is written to disk.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from math import ulp
from typing import Final, Literal, get_args

from ...store.errors import ArgumentError, argument_error
from .redelivery_delays import CountOnClose, check_redelivery, is_dead_letter_name
from .sizes import KIB, is_number, parse_share, parse_size

WhenFull = Literal["block", "fail", "drop_newest", "drop_oldest", "dead_letter"]
WhenStoreFull = Literal["block", "fail"]
Eviction = Literal["oldest", "newest", "lowest_priority", "latest_per_key"]

PREFETCH_MAX: Final = 1_000_000
TIMEOUT_SECONDS_MAX: Final = 1_000_000
ABOVE_ZERO: Final = ulp(0.0)
"""The least float above 0, as the lower bound of fields that exclude 0."""
SWEEP_SECONDS_MIN: Final = 0.1
ACK_DEADLINE_SECONDS_MIN: Final = 1.0
INACTIVE_SECONDS_MIN: Final = 1.0
DUPLICATE_WINDOW_MAX: Final = 1_000_000
RETAIN_SECONDS_MAX: Final = 10_000_000_000
"""Most seconds that a topic may retain a message: three centuries."""
MEMORY_SHARE_BYTES_MIN: Final = 64 * KIB
"""Least memory_share in bytes. With less, a list could not hold a few messages ahead."""

_END, _WORD, _ANY_WORD, _REST = 3, 2, 1, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationPolicy:
    """The rules of the destinations whose names match a pattern of `Settings.policies`."""

    prefetch: int = 1000
    """Most unsettled deliveries of a consumer if `subscribe` gives no other number; from 0 to 1,000,000.
    More: fewer waits for acks; more messages are delivered again when the consumer dies."""

    max_messages: int | None = None
    """Most messages that a queue or topic may hold, including those in flight; None: no limit of its own.
    More: a longer backlog before senders are slowed down."""

    max_bytes: int | str | None = None
    """Most bytes of bodies and headers that a queue or topic may hold, or a size such as "64MiB"; None: no limit.
    More: a longer backlog before senders are slowed down."""

    when_full: WhenFull = "block"
    """What a send does at a limit: "block" until acks make room, "fail", "drop_newest", "drop_oldest" or "dead_letter".
    "block": senders slow down to the pace of consumers. Dropping loses messages, which the statistics count."""

    when_store_full: WhenStoreFull = "fail"
    """What a send does if the disk, store_limit or temp_limit is full, whoever filled it: "fail" or "block".
    "block": senders wait for the consumers of other destinations too."""

    block_timeout_seconds: float | None = None
    """Seconds that a send without a timeout waits for room before it raises StoreFull; None: for ever.
    More: fewer failed sends; a sender notices later that nobody consumes."""

    ack_deadline_seconds: float | None = None
    """Seconds after which a delivery that is not settled comes back, as a failed attempt; from 1 on; None: never.
    More: fewer messages are delivered twice; messages of a stuck consumer are redelivered later."""

    slow_consumer_seconds: float | None = 30.0
    """Seconds without a take or an ack after which a consumer that holds or could have messages is slow; None: never.
    More: fewer false alarms; a slow consumer is noticed later."""

    inactive_seconds: float | None = None
    """Seconds after which an empty queue or topic that nobody uses is deleted, until the next send; None: never.
    More: a destination that is seldom used is made anew less often. A duplicate_window switches this off."""

    group_rebalance: bool = False
    """Whether a group without messages in flight may move to an idle consumer, or away from a slow owner.
    True: later consumers get an even share. Acknowledge after the work; else two consumers may work in one group."""

    expiry_sweep_seconds: float = 30.0
    """Seconds between two searches for expired messages in the index of a destination; from 0.1 on.
    More: less work; expired messages take disk and count under limits for longer. Nobody receives them meanwhile."""

    expired_to_dead_letter: bool = False
    """Whether persistent messages that expire in a queue go to its dead-letter queue instead of being removed.
    True: no message is lost unseen; each costs a read and a write, and somebody must empty that queue."""

    subscriber_max_messages: int | None = None
    """Most messages that may wait for a topic subscriber without a name, and up to an eighth more; None: no limit.
    More: a slow subscriber loses fewer messages and keeps more of the journal."""

    eviction: Eviction = "oldest"
    """Which messages go first: "oldest", "newest", "lowest_priority", or "latest_per_key": all but the newest of a key.
    "oldest": subscribers get recent messages, with gaps. "latest_per_key": 320 bytes of RAM per waiting message."""

    eviction_key: str = "JMSXGroupID"
    """The header that is a message's key for "latest_per_key"; "JMSXGroupID" is its group.
    More different values: fewer messages have a newer one of their key."""

    retain_seconds: float | None = None
    """Seconds that a topic keeps messages that no subscription needs, so that they can be read again; None: no time.
    More: older messages to go back to, more disk. With retain_bytes too, whichever is reached first."""

    retain_bytes: int | str | None = None
    """Bytes of its newest messages that a topic keeps in this way, or a size such as "10GiB"; None: no limit in bytes.
    More: older messages to go back to, more disk. `store_limit` comes first: it removes retained messages."""

    memory_share: int | str | None = None
    """Most RAM that these destinations hold together: bytes from 64KiB on, or a share of memory_limit such as "10%".
    More: fewer disk reads for them, less room for others. None: as much as is free. It does not limit the backlog."""

    memory_reserve: int | str | None = None
    """RAM that is kept for these destinations alone, as bytes or a share such as "5%"; None: nothing is.
    More: a flood elsewhere costs them fewer disk reads; others have less. All reserves together: at most half."""

    duplicate_window: int = 0
    """Most message ids that are remembered of each producer, so that a message sent again is not stored again; 0: none.
    More: duplicates are found for longer. An id takes 32 bytes of RAM, all ids at most a sixteenth of memory_limit."""

    max_attempts: int | None = 6
    """Deliveries of a message without an ack before the message becomes a dead letter; None: no limit.
    More: temporary failures cost no message; a message that always fails costs more work."""

    count_on_close: CountOnClose = "processed"
    """Which deliveries count as attempts when their consumer or the store closes: "processed", "all" or "none".
    "processed": those that iteration gave, or whose body or headers were read. "none": a poison message comes again."""

    redelivery_delay_seconds: float = 0.0
    """Seconds that a message waits, in its place, after a nack or rollback; only its group waits for it.
    More: fewer attempts while another service is down; later delivery once the service is back."""

    redelivery_backoff: float = 1.0
    """Factor by which the redelivery delay grows with each further attempt, up to an hour or the first delay.
    More: fewer attempts in a long outage, later delivery at its end."""

    dead_letter_queue: str | None = "DLQ.{name}"
    """Queue for dead letters, which get headers that say why; {name} is their destination; None: they are discarded.
    The queue keeps dead letters, and the disk for them, until somebody takes them: there they may fail without end."""

    # max_bytes and retain_bytes as numbers.
    max_size_bytes: int | None = field(init=False, repr=False, compare=False)
    retain_size_bytes: int | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, check in _CHECKS:
            check(name, getattr(self, name))
        check_redelivery(
            self.max_attempts, self.redelivery_delay_seconds, self.redelivery_backoff, self.dead_letter_queue
        )
        max_size_bytes = None if self.max_bytes is None else parse_size("max_bytes", self.max_bytes, minimum=1)
        object.__setattr__(self, "max_size_bytes", max_size_bytes)
        retained = None if self.retain_bytes is None else parse_size("retain_bytes", self.retain_bytes, minimum=1)
        object.__setattr__(self, "retain_size_bytes", retained)

    def __dir__(self) -> list[str]:
        """Return the names of the fields. Other attributes are for the engine."""
        return [field.name for field in fields(self) if field.init]

    @property
    def has_quota(self) -> bool:
        """Whether its destinations have a share of memory or a reserve of their own."""
        return self.memory_share is not None or self.memory_reserve is not None

    @property
    def drops(self) -> bool:
        """Whether a full destination gives up a message, the sent one or another, instead of refusing the send."""
        return self.when_full in ("drop_newest", "drop_oldest", "dead_letter")

    @property
    def retains(self) -> bool:
        """Whether a topic keeps messages that no subscription needs."""
        return self.retain_seconds is not None or self.retain_size_bytes is not None

    @property
    def is_limiting(self) -> bool:
        """Whether the destination has a limit at which senders wait or fail."""
        return self.max_messages is not None or self.max_bytes is not None


# ---------------------------------------------------------------------- what a field may be


def _check_part(least_bytes: int, name: str, part: object) -> None:
    """Raise SettingsError unless this is None or a part of the memory limit."""
    if part is not None and parse_share(name, part) is None:
        parse_size(name, part, minimum=least_bytes)


def _check_count(name: str, count: object) -> None:
    """Raise SettingsError unless this is None or a number of messages."""
    if count is not None and (type(count) is not int or count < 1):
        raise argument_error(f"{name}={reprlib.repr(count)} must be an int from 1 on, or None", count, int)


def _check_seconds(least: float, name: str, seconds: object) -> None:
    """Raise SettingsError unless this is None or seconds from `least` on."""
    if seconds is not None and not is_number(seconds, least, TIMEOUT_SECONDS_MAX):
        begin = "above 0 and up" if least == ABOVE_ZERO else f"from {least:g}"
        bounds = f"seconds {begin} to {TIMEOUT_SECONDS_MAX:,}, or None"
        raise argument_error(f"{name}={reprlib.repr(seconds)} must be {bounds}", seconds, int, float)


def _check_retention(name: str, seconds: object) -> None:
    """Raise SettingsError unless this is None or a valid retain_seconds."""
    if seconds is not None and not is_number(seconds, ABOVE_ZERO, RETAIN_SECONDS_MAX):
        bounds = f"seconds above 0 and up to {RETAIN_SECONDS_MAX:,}, or None"
        raise argument_error(f"{name}={reprlib.repr(seconds)} must be {bounds}", seconds, int, float)


def _check_sweep(name: str, seconds: object) -> None:
    """Raise SettingsError unless this is a time between two sweeps."""
    if not is_number(seconds, SWEEP_SECONDS_MIN, TIMEOUT_SECONDS_MAX):
        bounds = f"a number from {SWEEP_SECONDS_MIN} to {TIMEOUT_SECONDS_MAX:,}"
        raise argument_error(f"{name}={reprlib.repr(seconds)} must be {bounds}", seconds, int, float)


def _check_choice(choices: tuple[str, ...], name: str, choice: object) -> None:
    if choice not in choices:
        raise argument_error(f"{name}={reprlib.repr(choice)} must be one of {choices}", choice, str)


def _check_header_name(name: str, header: object) -> None:
    if type(header) is not str or not header:
        raise argument_error(f"{name}={reprlib.repr(header)} must be the name of a header", header, str)


def _check_window(name: str, window: object) -> None:
    """Raise SettingsError unless this is a number of ids that deduplication remembers."""
    if type(window) is not int or not 0 <= window <= DUPLICATE_WINDOW_MAX:
        problem = f"{name}={reprlib.repr(window)} must be an int from 0 to {DUPLICATE_WINDOW_MAX:,}"
        raise argument_error(problem, window, int)


def _check_bool(name: str, value: object) -> None:
    if type(value) is not bool:
        raise ArgumentError(f"{name}={reprlib.repr(value)} must be a bool")


def check_ack_deadline(seconds: object, none: str) -> None:
    """Raise SettingsError unless this is an ack deadline. none: the value that means no deadline."""
    if not is_number(seconds, ACK_DEADLINE_SECONDS_MIN, TIMEOUT_SECONDS_MAX):
        bounds = f"seconds from {ACK_DEADLINE_SECONDS_MIN:g} to {TIMEOUT_SECONDS_MAX:,}, or {none}"
        problem = f"ack_deadline_seconds={reprlib.repr(seconds)} must be {bounds}"
        raise argument_error(problem, seconds, int, float)


def _check_no_or_ack_deadline(name: str, seconds: object) -> None:
    if seconds is not None:
        check_ack_deadline(seconds, "None")


def check_prefetch(prefetch: object) -> None:
    """Raise SettingsError unless this is a prefetch."""
    _check_prefetch("prefetch", prefetch)


def _check_prefetch(name: str, prefetch: object) -> None:
    if type(prefetch) is not int or not 0 <= prefetch <= PREFETCH_MAX:
        problem = f"{name}={reprlib.repr(prefetch)} must be an int from 0 to {PREFETCH_MAX:,}"
        raise argument_error(problem, prefetch, int)


_CHECKS: Final[tuple[tuple[str, Callable[[str, object], None]], ...]] = (
    ("prefetch", _check_prefetch),
    ("max_messages", _check_count),
    ("retain_seconds", _check_retention),
    ("memory_share", partial(_check_part, MEMORY_SHARE_BYTES_MIN)),
    ("memory_reserve", partial(_check_part, 1)),
    ("when_full", partial(_check_choice, get_args(WhenFull))),
    ("subscriber_max_messages", _check_count),
    ("eviction", partial(_check_choice, get_args(Eviction))),
    ("eviction_key", _check_header_name),
    ("count_on_close", partial(_check_choice, get_args(CountOnClose))),
    ("when_store_full", partial(_check_choice, get_args(WhenStoreFull))),
    ("duplicate_window", _check_window),
    ("block_timeout_seconds", partial(_check_seconds, 0)),
    ("ack_deadline_seconds", _check_no_or_ack_deadline),
    ("slow_consumer_seconds", partial(_check_seconds, ABOVE_ZERO)),
    ("inactive_seconds", partial(_check_seconds, INACTIVE_SECONDS_MIN)),
    ("group_rebalance", _check_bool),
    ("expired_to_dead_letter", _check_bool),
    ("expiry_sweep_seconds", _check_sweep),
)
"""Check functions by field of a policy; they raise SettingsError. Sizes, and pairs of fields, are checked elsewhere."""


# ---------------------------------------------------------------------- patterns


def check_policies(policies: object) -> None:
    """Raise SettingsError unless this is a mapping of valid patterns to policies."""
    given = f"policies={reprlib.repr(policies)}"
    if not isinstance(policies, Mapping):
        raise ArgumentError(f"{given} must map patterns to DestinationPolicy objects")
    for pattern, policy in policies.items():
        problem = pattern_problem(pattern)
        if problem is None and not isinstance(policy, DestinationPolicy):
            problem = f"{reprlib.repr(pattern)} must have a DestinationPolicy, not {type(policy).__name__}"
            raise ArgumentError(f"{given}: {problem}")
        if problem is not None:
            raise argument_error(f"{given}: {problem}", pattern, str)


def pattern_problem(pattern: object) -> str | None:
    """Return the problem of a pattern, as text for an error. None: the pattern is valid."""
    shown = reprlib.repr(pattern)
    if not isinstance(pattern, str) or not pattern:
        return f'a pattern must be a str such as "orders.*", not {shown}'
    words = pattern.split(".")
    if ">" in words[:-1]:
        return f'the pattern {shown} goes on behind ">", which stands for the rest'
    if any(len(word) > 1 and ("*" in word or ">" in word) for word in words):
        return f'in the pattern {shown}, "*" and ">" must be whole words, which "." divides'
    return None


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern: one of its words is "*" or ">"."""
    return any(word in ("*", ">") for word in name.split("."))


def policy_for(policies: Mapping[str, DestinationPolicy], name: str) -> DestinationPolicy:
    """Return the policy of the most specific pattern that matches; the defaults where none does. O(patterns).

    Words are compared from the left, a word before "*", "*" before ">", and the name's end before ">".
    """
    pattern = pattern_for(policies, name)
    return policies[pattern] if pattern is not None else _DEFAULTS


def pattern_for(patterns: Iterable[str], name: str) -> str | None:
    """Return the most specific pattern that matches; None where none does. O(patterns)."""
    found = [pattern for pattern in patterns if matches(pattern, name)]
    return max(found, key=specificity) if found else None


_DEFAULTS: Final = DestinationPolicy()
"""Shared by all destinations without a policy, because making a policy checks each of its fields."""


def is_dead_letter_queue(policies: Mapping[str, DestinationPolicy], name: str) -> bool:
    """Return whether a policy sends dead letters to this queue. O(policies)."""
    return is_dead_letter_name({known.dead_letter_queue for known in (*policies.values(), _DEFAULTS)}, name)


def matches(pattern: str, name: str) -> bool:
    """Return whether a valid pattern stands for this name."""
    wanted, words = pattern.split("."), name.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        words = words[: len(wanted)]
    return len(wanted) == len(words) and all(word in ("*", actual) for word, actual in zip(wanted, words, strict=True))


def specificity(pattern: str) -> list[int]:
    """Return a sort key that is greater for the more specific of two patterns that match the same name."""
    words = pattern.split(".")
    ranks = [{"*": _ANY_WORD, ">": _REST}.get(word, _WORD) for word in words]
    return ranks if words[-1] == ">" else [*ranks, _END]
