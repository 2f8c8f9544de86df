"""Scenarios: the named shapes of load, as data.

A scenario says who sends, who consumes, and when the broker process is
killed; how many messages of which size is chosen beside it. Points in time
are shares of the whole work, so that a scenario of a thousand messages is a
small copy of one of a million: 0 is the beginning, 0.5 is everything sent
(where the backlog comes first), 1 is everything acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass

RARE_SELECTOR = "kind = 'rare'"
"""Matches the last 1 % of what each producer sends."""


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    name: str
    selector: str | None = None
    pace: int | None = None
    """Messages a second; None: as fast as they come."""
    prefetch: int = 1000
    joins_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    purpose: str
    consumers: tuple[ConsumerPlan, ...]
    producers: int = 4
    backlog_first: bool = True
    kills: tuple[float, ...] = ()


FAST = ConsumerPlan("fast")
SLOW = ConsumerPlan("slow", pace=400, prefetch=100)
RARE = ConsumerPlan("rare", selector=RARE_SELECTOR)
LATE = ConsumerPlan("late", joins_at=0.65)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "tour",
            "a backlog, a fast, a slow, a selecting and a late consumer, and kill -9 while sending and while consuming",
            consumers=(FAST, SLOW, RARE, LATE),
            kills=(0.25, 0.75),
        ),
        Scenario("steady", "producers and a consumer at the same time", consumers=(FAST,), backlog_first=False),
        Scenario("backlog", "everything is sent before anything is consumed", consumers=(FAST,)),
        Scenario("slow", "one slow consumer among three fast ones", consumers=(FAST, FAST, FAST, SLOW)),
        Scenario("rare", "a selector that matches the last 1 % of a backlog", consumers=(FAST, RARE)),
        Scenario(
            "kill",
            "kill -9 five times, while producers and consumers work",
            consumers=(FAST, SLOW),
            backlog_first=False,
            kills=(0.15, 0.3, 0.45, 0.6, 0.75),
        ),
    )
}

OWN_MESSAGES = Scenario(
    "input",
    "the messages of a file, kill -9 while sending and while consuming",
    consumers=(FAST,),
    producers=1,
    kills=(0.25, 0.75),
)
"""What `--input` runs."""
