"""Scenario: a named shape of load, as data.

A scenario says which messages are sent, who consumes them, and what is done to the store meanwhile. Points in time are
shares of the whole work, so that a scenario of a thousand messages is a small copy of one of a million: 0 is the
beginning, 0.5 is everything sent (if the backlog comes first), and 1 is everything sent and settled.
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

MESSAGE_BYTES: Final = 512
"""Approximate bytes of RAM that a message takes beside its body."""


@dataclass(frozen=True, slots=True)
class DestinationPlan:
    """Queues, or topics, to which some producers send in turns, message by message."""

    name: str = "load"
    kind: Literal["queue", "topic"] = "queue"
    count: int = 1
    producers: int = 4
    """Number of producers. 0: the producers of another destination send there as well."""
    share: float = 1.0
    """Share of all messages, relative to the shares of the other destinations."""
    joins_at: float = 0.0
    """Point of the work at which its producers begin to send."""
    backlog: float | None = None
    """Share of the memory limit that its producer fills, and fills again whenever all of that is consumed. Each message
    counts with MESSAGE_BYTES beside its body. None: the producer sends as the schedule says."""
    memory_share: str | None = None
    memory_reserve: str | None = None
    """RAM that is kept for these destinations alone, as in DestinationPolicy."""

    @property
    def names(self) -> list[str]:
        return [self.name] if self.count == 1 else [f"{self.name}.{number}" for number in range(self.count)]


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    name: str
    number: int = 0
    """Number among the consumers of its name, from 0."""
    at: str | None = None
    """Name of the destinations to consume; None: all. For each topic the consumer has a durable subscription."""
    kinds: tuple[Kind, ...] | None = None
    """Kinds that its selector asks for; None: it has no selector."""
    pace: float | None = None
    """Messages a second; None: as fast as they arrive."""
    prefetch: int = 1000
    joins_at: float = 0.0
    leaves_after: int | None = None
    """Messages after which the consumer closes, with a batch unsettled, and subscribes anew."""
    rollbacks: float = 0.0
    """Share of its batches that it rolls back. Above 0 it acknowledges in transactions."""
    retries: float = 0.0
    """Share of its batches that it nacks, so that they come again after retry_seconds."""
    retry_seconds: float = 1.0
    paces: tuple[tuple[float, float], ...] = ()
    """Later paces in order: point of the work at which each begins, and messages a second."""
    rests: float = 0.0
    """Seconds that it pauses whenever it has taken all messages."""
    own_key: bool = False
    """Its selector asks for the messages that have its number as their key."""

    @property
    def title(self) -> str:
        """Name and number, which are also the name of its durable subscriptions."""
        return f"{self.name}.{self.number}"

    @property
    def selector(self) -> str | None:
        if self.own_key:
            return f"key = {self.number}"
        if self.kinds is None:
            return None
        return f"kind IN ({', '.join(repr(kind) for kind in self.kinds)})"


@dataclass(frozen=True, slots=True)
class Act:
    """An act on the store at one point of the work; at = 1: when all consumers have finished."""

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
    destinations: tuple[DestinationPlan, ...] = (DestinationPlan(),)
    persistent: bool = True
    sync: Literal["always", "interval", "never"] = "always"
    memory: int = 64 * MIB
    rate: Schedule | None = None
    """Schedule of all producers together; None: as fast as they can."""
    backlog_first: bool = False
    """Whether everything is sent before anything is consumed."""
    stuck_every: int | None = None
    keys: int = 1
    """Values of the header `key`, a number from 0 on; a producer's messages take turns."""
    consumers: tuple[ConsumerPlan, ...] = ()
    acts: tuple[Act, ...] = ()
    """Acts on the store, in their order."""

    @property
    def producers(self) -> list[DestinationPlan]:
        """Where each producer sends."""
        return [destination for destination in self.destinations for _ in range(destination.producers)]

    def consumed_by(self, consumer: ConsumerPlan) -> list[DestinationPlan]:
        return [each for each in self.destinations if consumer.at in (None, each.name)]

    @property
    def kills(self) -> int:
        return sum(act.do == "kill" for act in self.acts)

    @property
    def unwanted(self) -> set[Kind]:
        """The kinds that no consumer asks for. Their messages are left at the end."""
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
            destinations=tuple(
                replace(destination, count=min(destination.count, messages)) for destination in self.destinations
            ),
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
    backlog_first=True,
    consumers=(ConsumerPlan("fast"),),
    acts=(Act(0.25, "kill"), Act(0.75, "kill")),
)
"""The scenario for a user's own messages (`--input`)."""
