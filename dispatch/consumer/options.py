"""What a `subscribe` asks for, checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ...store.errors import ArgumentError, argument_error
from ..config.policy import DestinationPolicy, check_ack_deadline, check_prefetch
from ..core.memory.consumer_memory import CONSUMER_BYTES, LOOP_BYTES
from ..selectors.selector import Selector, compile_selector

CONSUMER_PRIORITY_MIN: Final = -128
CONSUMER_PRIORITY_MAX: Final = 127


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """What a `subscribe` asks for, checked."""

    selector: Selector | None
    prefetch: int
    is_exclusive: bool
    """It gets all, or waits to take over."""
    priority: int
    on_ready: Callable[[], None] | None
    on_slow: Callable[[Any], None] | None
    """See Activity."""
    deadline_seconds: float
    """0: it has all time."""

    @property
    def is_of_a_loop(self) -> bool:
        """Whether an event loop takes from it, which has a consumer of its own for this one and never waits in a take.

        Its callback says so. It inherits nothing: a class of an event loop is interpreted, and none of machine code can
        be its base.
        """
        return bool(getattr(self.on_ready, "is_of_a_loop", False))

    @property
    def charge_bytes(self) -> int:
        """What the consumer is charged, without its consumer group and lists."""
        return consumer_charge(is_of_a_loop=self.is_of_a_loop)


def consumer_charge(*, is_of_a_loop: bool) -> int:
    """Return what a consumer is charged, without its consumer group and lists."""
    return CONSUMER_BYTES + LOOP_BYTES if is_of_a_loop else CONSUMER_BYTES


def consumer_options(
    policy: DestinationPolicy,
    *,
    selector: object,
    prefetch: object,
    exclusive: object,
    priority: object,
    on_ready: Callable[[], None] | None,
    on_slow: Callable[[Any], None] | None,
    ack_deadline_seconds: object,
) -> ConsumerOptions:
    """Check what `subscribe` of a queue or topic is given, beside the policy. SelectorError, SettingsError."""
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
    return ConsumerOptions(compiled(selector), prefetch, exclusive, priority, on_ready, on_slow, deadline_seconds)


def _deadline_of(given: object, policy: DestinationPolicy) -> float:
    """Return the ack deadline that a `subscribe` asks for, else that of the policy; 0: none. SettingsError."""
    if given is None:
        return policy.ack_deadline_seconds or 0.0
    if given != 0 or type(given) is bool:
        check_ack_deadline(given)
    assert isinstance(given, int | float)
    return float(given)


def compiled(selector: object) -> Selector | None:
    """SelectorError, SettingsError."""
    if selector is not None and not isinstance(selector, str):
        raise ArgumentError(f"a selector must be a str, not {type(selector).__name__}")
    return compile_selector(selector) if selector is not None else None
