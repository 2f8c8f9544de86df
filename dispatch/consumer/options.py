"""ConsumerOptions: the checked arguments of `subscribe`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ...store.errors import ArgumentError, argument_error
from ..config.policy import DestinationPolicy, check_ack_deadline, check_prefetch
from ..config.sizes import is_number
from ..core.lists.consumer_memory import CONSUMER_BYTES, LOOP_BYTES
from ..selectors.selector import Selector, compile_selector

CONSUMER_PRIORITY_MIN: Final = -128
CONSUMER_PRIORITY_MAX: Final = 127


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The checked arguments of `subscribe`."""

    selector: Selector | None
    prefetch: int
    is_exclusive: bool
    """Whether it gets all messages, or waits to take over."""
    priority: int
    on_ready: Callable[[], None] | None
    on_slow: Callable[[Any], None] | None
    """Called with the consumer when it is found to be slow."""
    deadline_seconds: float
    """Ack deadline in seconds; 0: there is none."""
    slow_seconds: float | None
    """Seconds without a take or an ack after which it is slow; None: it never is."""

    @property
    def is_of_a_loop(self) -> bool:
        """Whether an event loop takes from the consumer: the callback of an AsyncConsumer says so.

        An AsyncConsumer wraps the consumer then, which never waits in a take. AsyncConsumer does not inherit from
        Consumer: classes of an event loop are interpreted, and a compiled class can't be their base.
        """
        return bool(getattr(self.on_ready, "is_of_a_loop", False))

    @property
    def charge_bytes(self) -> int:
        """The charge of the consumer, without its selector group and lists."""
        return consumer_charge(is_of_a_loop=self.is_of_a_loop)


def consumer_charge(*, is_of_a_loop: bool) -> int:
    """Return the charge of a consumer, without its selector group and lists."""
    return CONSUMER_BYTES + LOOP_BYTES if is_of_a_loop else CONSUMER_BYTES


def consumer_options(
    policy: DestinationPolicy,
    *,
    selector: object,
    prefetch: object,
    exclusive: object = False,
    priority: object = 0,
    on_ready: Callable[[], None] | None,
    on_slow: Callable[[Any], None] | None = None,
    ack_deadline_seconds: object,
) -> ConsumerOptions:
    """Check the arguments of `subscribe` against the policy. SelectorError, SettingsError."""
    if prefetch is None:
        prefetch = policy.prefetch
    check_prefetch(prefetch)
    assert isinstance(prefetch, int)
    if on_ready is not None and not callable(on_ready):
        raise ArgumentError(f"on_ready must be callable, not {type(on_ready).__name__}")
    if on_slow is not None and not callable(on_slow):
        raise ArgumentError(f"on_slow must be callable, not {type(on_slow).__name__}")
    if type(exclusive) is not bool:
        raise ArgumentError(f"exclusive must be True or False, not {exclusive!r}")
    if type(priority) is not int or not CONSUMER_PRIORITY_MIN <= priority <= CONSUMER_PRIORITY_MAX:
        bounds = f"from {CONSUMER_PRIORITY_MIN} to {CONSUMER_PRIORITY_MAX}"
        raise argument_error(f"a consumer's priority must be an int {bounds}, not {priority!r}", priority, int)
    deadline_seconds = _deadline_of(ack_deadline_seconds, policy)
    return ConsumerOptions(
        compiled(selector),
        prefetch,
        exclusive,
        priority,
        on_ready,
        on_slow,
        deadline_seconds,
        policy.slow_consumer_seconds,
    )


def _deadline_of(given: object, policy: DestinationPolicy) -> float:
    """Return the ack deadline of a `subscribe`, or else that of the policy; 0: none. SettingsError."""
    if given is None:
        return policy.ack_deadline_seconds or 0.0
    if not is_number(given, 0, 0):
        check_ack_deadline(given, "0 for none")
    assert isinstance(given, int | float)
    return float(given)


def compiled(selector: object) -> Selector | None:
    """Compile a selector; None stays None. SelectorError, SettingsError."""
    if selector is not None and not isinstance(selector, str):
        raise ArgumentError(f"a selector must be a str, not {type(selector).__name__}")
    return compile_selector(selector) if selector is not None else None
