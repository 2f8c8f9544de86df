"""RedeliveryRule: how often a message of one destination is delivered, how long it waits in between, and where it goes.

A message that fails in a dead-letter queue is delivered again without end: dead letters of dead letters would go round
in circles.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from ...store.errors import SettingsError, argument_error
from ...store.format.state_record import NAME_BYTES_MAX
from ...store.index.delivery_counts import DELIVERY_COUNT_MAX
from ...store.message import HeaderValue
from .sizes import is_number

CountOnClose = Literal["processed", "all", "none"]
"""Which deliveries the close of a consumer counts as attempts."""

NAME: Final = "{name}"
"""Stands for the destination's name in dead_letter_queue."""
DELAY_SECONDS_MAX: Final = 1_000_000
BACKOFF_MAX: Final = 1_000
BACKOFF_SECONDS_MAX: Final = 3_600.0
"""A growing delay stops growing at this many seconds."""
_EXPONENT_MAX: Final = 64
"""Largest exponent of a growing delay; without a bound a float would overflow."""


FROM: Final = "dead_letter_from"
"""Header with the name of the destination to which the message was sent."""
SUBSCRIPTION: Final = "dead_letter_subscription"
"""Header with the name of the durable subscription in which the message failed."""
REASON: Final = "dead_letter_reason"
ATTEMPTS: Final = "dead_letter_attempts"
"""Header with the number of deliveries of the message there."""
TIME: Final = "dead_letter_time"
"""Header with the time when the message became a dead letter, in ms since 1970 (UTC)."""
MAX_ATTEMPTS: Final = "max_attempts"
"""The reason: the message was delivered max_attempts times without an ack."""
EXPIRED: Final = "expired"
"""The reason: the message expired before anybody acknowledged it."""
REJECTED: Final = "rejected"
"""The reason: a consumer rejected the message and gave no reason of its own."""
FULL: Final = "full"
"""The reason: the destination had no room for the message."""


def dead_letter_headers(headers: dict[str, HeaderValue], added: dict[str, HeaderValue]) -> dict[str, HeaderValue]:
    """Return a dead letter's headers: its own and the added ones, without the subscription of an earlier failure."""
    return {name: value for name, value in headers.items() if name != SUBSCRIPTION} | added


class RedeliveryRule(NamedTuple):
    """The redelivery rule of one destination, as its policy says."""

    max_attempts: int | None
    """Deliveries of a message before it is a dead letter; None: no end."""
    delay_seconds: float
    backoff: float
    dead_letter_queue: str | None
    """Where dead letters go; None: they are discarded."""
    count_on_close: CountOnClose = "processed"

    def counts_close(self, is_seen: bool) -> bool:
        """Return whether the close of the consumer counts as a failed attempt. is_seen: the host saw the message."""
        return self.count_on_close == "all" or (is_seen and self.count_on_close == "processed")

    def is_last(self, attempts: int) -> bool:
        """Return whether a message that was delivered `attempts` times becomes a dead letter now."""
        return self.max_attempts is not None and attempts >= self.max_attempts

    def wait_seconds(self, attempts: int) -> float:
        """Return how long a message that was delivered `attempts` times waits for the next delivery."""
        grown = self.delay_seconds * self.backoff ** min(attempts - 1, _EXPONENT_MAX)
        return min(grown, max(self.delay_seconds, BACKOFF_SECONDS_MAX))


def check_redelivery(max_attempts: object, delay_seconds: object, backoff: object, dead_letter_queue: object) -> None:
    """Raise SettingsError unless these values are valid redelivery fields of a policy."""
    is_count = type(max_attempts) is int and 1 <= max_attempts <= DELIVERY_COUNT_MAX
    if max_attempts is not None and not is_count:
        problem = f"max_attempts={reprlib.repr(max_attempts)} must be an int from 1 to {DELIVERY_COUNT_MAX:,}, or None"
        raise argument_error(problem, max_attempts, int)
    if not is_number(delay_seconds, 0, DELAY_SECONDS_MAX):
        given, most = reprlib.repr(delay_seconds), f"{DELAY_SECONDS_MAX:,}"
        problem = f"redelivery_delay_seconds={given} must be a number from 0 to {most}"
        raise argument_error(problem, delay_seconds, int, float)
    if not is_number(backoff, 1, BACKOFF_MAX):
        problem = f"redelivery_backoff={reprlib.repr(backoff)} must be a number from 1 to {BACKOFF_MAX:,}"
        raise argument_error(problem, backoff, int, float)
    if dead_letter_queue is None:
        return
    given = f"dead_letter_queue={reprlib.repr(dead_letter_queue)}"
    if not isinstance(dead_letter_queue, str) or not dead_letter_queue.isprintable():
        raise argument_error(f'{given} must be a name such as "DLQ.{NAME}", or None', dead_letter_queue, str)
    if dead_letter_queue.strip() in ("", NAME) or dead_letter_queue.count(NAME) > 1:
        raise SettingsError(f"{given} must be another name than the queue's, with {NAME} in it once or not at all")
    try:
        size = len(dead_letter_queue.encode())
    except UnicodeEncodeError:
        raise SettingsError(f"{given} holds half a surrogate pair: it is not text") from None
    if size > NAME_BYTES_MAX // 2:
        raise SettingsError(f"{given} is above {NAME_BYTES_MAX // 2} bytes: shorten it")


def dead_letter_name(template: str, name: str) -> str:
    """Return the dead-letter queue of a destination. A destination's name that is too long for it is cut."""
    room = NAME_BYTES_MAX - len(template.replace(NAME, "").encode())
    return template.replace(NAME, name.encode()[:room].decode(errors="ignore"))


def is_dead_letter_name(templates: Iterable[str | None], name: str) -> bool:
    """Return whether some template makes this name, so that dead letters of some destination may go there."""
    return any(template is not None and _is_made(template, name) for template in templates)


def _is_made(template: str, name: str) -> bool:
    before, placeholder, behind = template.partition(NAME)
    if not placeholder:
        return name == template
    return name.startswith(before) and name.endswith(behind) and len(name) > len(before) + len(behind)
