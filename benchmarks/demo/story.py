"""The story: three scenarios of the load test, each with captions for the points of its work.

Rates follow a schedule, so the story takes as long on a fast machine as on a slow one. Only the drain at the end
depends on the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from forebay.dispatch.config.sizes import KIB, MIB

from ..load.scenario import Act, ConsumerPlan, DestinationPlan, Scenario
from ..load.schedule import Schedule

FAST_SECONDS: Final = 60.0
SLOW_SECONDS: Final = 300.0
SECONDS_MIN: Final = 3.0
_BURST: Final = 22_000
"""Messages a second during the burst."""


@dataclass(frozen=True, slots=True)
class Caption:
    """A text that is shown from a point of the work on."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Chapter:
    title: str
    scenario: Scenario
    captions: tuple[Caption, ...]

    def caption(self, share: float) -> str:
        """Return the text for this share of the work."""
        return [caption.text for caption in self.captions if share >= caption.at][-1]


def story(seconds: float) -> list[Chapter]:
    """Return the chapters of a demo of about so many seconds."""
    assert seconds >= SECONDS_MIN
    stretch = seconds / FAST_SECONDS
    return [_one_limit(stretch), _stuck(stretch), _flood(stretch)]


def _one_limit(stretch: float) -> Chapter:
    # Messages by step, to know at which share of the work (sends and acks) each step begins.
    steps = ((2_000, 7.0), (3_000, 7.0), (_BURST, 5.0))
    rate = Schedule.parse(",".join(f"{rate}:{seconds}s" for rate, seconds in steps)).scaled(stretch)
    keeps_up, slowed, burst = (rate * seconds for rate, seconds in steps)
    work = 2 * (keeps_up + slowed + burst)
    slow_at = 2 * keeps_up / work
    burst_at = (2 * keeps_up + slowed + 7_000) / work  # 1,000 a second of the slowed ones are acknowledged
    sent_at = (2 * keeps_up + slowed + burst + 12_000) / work
    drain_pace, rest = 12_000.0, 1 - sent_at
    resize_at, kill_at = sent_at + 0.15 * rest, sent_at + 0.5 * rest
    # In five minutes the burst is 1 GiB. One minute has neither the time nor, on many machines, the disk for that.
    body_bytes = 2 * KIB if stretch >= SLOW_SECONDS / FAST_SECONDS else KIB
    scenario = Scenario(
        "one limit",
        "a consumer slowed, a burst, a selector behind it, a quarter of the limit, kill -9",
        messages=rate.messages or 1,
        size=(body_bytes,),
        destinations=(DestinationPlan(producers=2),),
        rate=rate,
        consumers=(
            ConsumerPlan("worker", paces=((slow_at, 1_000.0), (sent_at, drain_pace))),
            ConsumerPlan("rare", kinds=("rare",), joins_at=sent_at),
        ),
        acts=(Act(resize_at, "resize", memory=16 * MIB), Act(kill_at, "kill")),
    )
    return Chapter(
        "one memory limit, any backlog",
        scenario,
        (
            Caption(0, "2,000 messages a second, each synced to disk, and a worker that keeps up."),
            Caption(slow_at, "The worker slows down: its next messages stay in RAM, the rest waits on disk."),
            Caption(burst_at, f"A burst of {_BURST:,} a second: the bar keeps its width, a plain deque climbs."),
            Caption(sent_at, "All is sent. A selector asks for 1 % at the far end, behind all of that."),
            Caption(resize_at, "The limit falls from 64 to 16 MiB while everything goes on."),
            Caption(kill_at, "kill -9 in the middle of it, and the next process recovers and drains the rest."),
        ),
    )


def _stuck(stretch: float) -> Chapter:
    # Never longer: given more time, cleanup would free the disk before the spectator asks for it.
    rate = Schedule.parse("20000:5s").scaled(min(stretch, 1.0))
    messages = rate.messages or 1
    scenario = Scenario(
        "stuck",
        "a few messages that nobody takes must not keep the disk",
        messages=messages,
        destinations=(DestinationPlan(producers=1),),
        rate=rate,
        stuck_every=min(29_000, max(messages // 3, 1)),
        consumers=(ConsumerPlan("worker", kinds=("plain", "rare")),),
        acts=(Act(1, "explain"), Act(1, "cleanup")),
    )
    return Chapter(
        "a stuck message in each data log",
        scenario,
        (
            Caption(0, "One message in each data log is wanted by nobody. What keeps the disk?"),
            Caption(0.9, "Explained, and given back: the stuck messages move on, their data logs go."),
        ),
    )


def _flood(stretch: float) -> Chapter:
    rate = Schedule.parse("15000:6s").scaled(stretch)
    scenario = Scenario(
        "flood",
        "non-persistent messages, far more than the limit",
        messages=rate.messages or 1,
        destinations=(DestinationPlan(producers=2),),
        persistent=False,
        memory=16 * MIB,
        rate=rate,
        backlog_first=True,
        consumers=(ConsumerPlan("worker", pace=30_000.0),),
    )
    return Chapter(
        "a flood that is not persistent",
        scenario,
        (
            Caption(0, "No journal for these: what the limit has no room for goes to tmp-storage."),
            Caption(0.5, "And all of it comes back, in order."),
        ),
    )
