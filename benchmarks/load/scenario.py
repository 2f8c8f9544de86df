"""Scenario: a named shape of load, as data.

It says which messages are sent, who consumes them, and what is done to the
store meanwhile. Points in time are shares of the whole work, so that a
scenario of a thousand messages is a small copy of one of a million: 0 is the
beginning, 0.5 is everything sent (where the backlog comes first), 1 is
everything sent and settled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from forebay.dispatch.config.sizes import KIB, MIB

from .schedule import Schedule

Kind = Literal["plain", "rare", "stuck"]
KINDS: Final[tuple[Kind, ...]] = ("plain", "rare", "stuck")
"""The header `kind` of a message: rare is the last 1 % of each producer, stuck each stuck_every-th."""

Deed = Literal["kill", "purge", "resize", "cleanup", "explain"]
DEEDS: Final[tuple[Deed, ...]] = ("kill", "purge", "resize", "cleanup", "explain")


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    name: str
    kinds: tuple[Kind, ...] | None = None
    """Its selector asks for these; None: it has no selector."""
    pace: float | None = None
    """Messages a second; None: as fast as they come."""
    prefetch: int = 1000
    joins_at: float = 0.0
    leaves_after: int | None = None
    """Messages after which the consumer closes, with a batch unsettled, and subscribes anew."""
    rollbacks: float = 0.0
    """The share of its batches that it rolls back. Above 0 it acknowledges in transactions."""
    retries: float = 0.0
    """The share of its batches that it gives back, to have them again after retry_seconds."""
    retry_seconds: float = 1.0
    paces: tuple[tuple[float, float], ...] = ()
    """Later paces: each with the share of the work from which on it holds, in order."""

    @property
    def selector(self) -> str | None:
        if self.kinds is None:
            return None
        return f"kind IN ({', '.join(repr(kind) for kind in self.kinds)})"


@dataclass(frozen=True, slots=True)
class Act:
    """An act on the store at one point of the work; at = 1: when all consumers are through."""

    at: float
    do: Deed
    memory: int | None = None
    """The limit to resize to, in bytes."""


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    purpose: str
    messages: int = 1_000_000
    size: tuple[int, ...] = (KIB,)
    """Bytes of bodies, which take turns; empty: the messages bring their own."""
    producers: int = 4
    destinations: int = 1
    """Queues; each producer sends to one after the other, message by message."""
    persistent: bool = True
    sync: Literal["always", "interval", "never"] = "always"
    memory: int = 64 * MIB
    rate: Schedule | None = None
    """Schedule of all producers together; None: as fast as they can."""
    backlog_first: bool = False
    """Whether everything is sent before anything is consumed."""
    stuck_every: int | None = None
    consumers: tuple[ConsumerPlan, ...] = ()
    acts: tuple[Act, ...] = ()
    """Acts, in their order."""

    @property
    def kills(self) -> int:
        return sum(act.do == "kill" for act in self.acts)

    @property
    def unwanted(self) -> set[Kind]:
        """Kinds that no consumer asks for: they are still there in the end."""
        wanted: set[Kind] = set()
        for consumer in self.consumers:
            wanted |= set(KINDS if consumer.kinds is None else consumer.kinds)
        return set(KINDS) - wanted

    def scaled(self, factor: float) -> Scenario:
        """Return the scenario with `factor` times the messages; rates, paces, sizes and queues stay if they can."""

        def scaled(number: int | None) -> int | None:
            return None if number is None else max(1, round(number * factor))

        messages = max(1, round(self.messages * factor))
        return replace(
            self,
            messages=messages,
            destinations=min(self.destinations, messages),
            rate=None if self.rate is None else self.rate.scaled(factor),
            stuck_every=scaled(self.stuck_every),
            consumers=tuple(
                replace(consumer, leaves_after=scaled(consumer.leaves_after)) for consumer in self.consumers
            ),
        )


OWN_MESSAGES: Final = Scenario(
    "input",
    "the messages of a file, kill -9 while sending and while consuming",
    size=(),
    producers=1,
    backlog_first=True,
    consumers=(ConsumerPlan("fast"),),
    acts=(Act(0.25, "kill"), Act(0.75, "kill")),
)
"""The scenario of `--input`."""
