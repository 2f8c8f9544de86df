"""Whatever call a crash follows, a cursor is where it was or where it was to go, and what is retained is there."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from crashing import same
from inside import inside, open_forebay
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import DestinationPolicy, Forebay, Message, Topic
from forebay.dispatch.config.settings import Settings, SyncMode
from forebay.testing import ManualClock

HOUR = 3600.0


class CrashedBay:
    """A bay of which `look` is shown, before each call that changes the disk, what a crash would leave."""

    def __init__(self, sync: SyncMode, look: Callable[[Forebay], None], **policy: object) -> None:
        self.settings = Settings(
            background=False,
            memory_limit="4MiB",
            sync=sync,
            max_file_length="64KiB",
            policies={"prices": DestinationPolicy(**policy)},  # type: ignore[arg-type]
        )
        self.disk, self.metadata, self.clock = SimulatedDisk(), SimulatedMetadataStore(), ManualClock()
        self.states = 0
        self._look = look
        self._random = Random(3)
        self.bay = open_forebay(self.disk, self.metadata, self.settings, self.clock)

    def begin(self) -> None:
        self.disk.on_call = self._crash

    def end(self) -> None:
        self.disk.on_call = None

    def _crash(self, call: str, name: str) -> None:
        self._examine(self.disk.crash_process(), same(self.metadata))
        self._examine(self.disk.crash_process(), SimulatedMetadataStore())
        if self.settings.sync == "always":
            for mode in (PowerCut.ANY, PowerCut.SYNCED, PowerCut.KEPT):
                left = self.metadata.crash(self._random)
                self._examine(self.disk.crash_power(self._random, mode), left)
            self._examine(self.disk.crash_power(self._random, PowerCut.SYNCED), SimulatedMetadataStore())

    def _examine(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore) -> None:
        self.states += 1
        bay = open_forebay(disk.crash_process(), metadata, self.settings, ManualClock(start_ms=self.clock.time_ms()))
        self._look(bay)
        inside(bay).index._check()
        inside(bay).store.subscriptions._check()
        inside(bay).audit()


def depth(topic: Topic) -> int:
    return topic.statistics().subscriptions["audit"].depth


@pytest.mark.parametrize("sync", ["always", "never"])
def test_crash_while_old_messages_go_leaves_all_that_is_retained_and_all_that_is_pending(sync: SyncMode) -> None:
    found: set[int] = set()

    def look(bay: Forebay) -> None:
        topic = bay.topic("prices")
        found.add(topic.statistics().retained_messages)
        assert depth(topic) == 30

    crashed = CrashedBay(sync, look, retain_seconds=HOUR)
    topic = crashed.bay.topic("prices")
    consumer = topic.subscribe(durable="audit")
    topic.send_many(Message(bytes(300), priority=4 + n % 2) for n in range(700))
    consumer.ack(consumer.take(700))
    crashed.clock.advance(HOUR - 1)
    topic.send_many(Message(bytes(300)) for _ in range(40))
    consumer.ack(consumer.take(10))
    consumer.close()
    crashed.bay.checkpoint()
    crashed.clock.advance(2)
    crashed.begin()
    crashed.bay.step()
    crashed.bay.cleanup()
    assert found == {740, 390, 40}  # of one priority after the other
    found.clear()
    crashed.bay.cleanup()
    crashed.bay.close()
    crashed.end()
    assert found <= {40} and crashed.states >= 30
    assert crashed.bay is not None


@pytest.mark.parametrize("sync", ["always", "never"])
def test_crash_while_a_cursor_moves_leaves_it_where_it_was_or_where_it_was_to_go(sync: SyncMode) -> None:
    """Back and forward, and through the cleanups behind it."""
    found: set[int] = set()
    crashed = CrashedBay(sync, lambda bay: found.add(depth(bay.topic("prices"))), retain_seconds=HOUR)
    topic = crashed.bay.topic("prices")
    consumer = topic.subscribe(durable="audit")
    topic.send_many(Message(bytes(300), priority=4 + n % 2) for n in range(700))
    consumer.ack(consumer.take(690))
    consumer.close()
    crashed.bay.checkpoint()
    sent, before = 700, 10
    crashed.begin()
    for to in ("begin", "end", "begin"):
        after = 0 if to == "end" else sent
        assert topic.subscription("audit").seek(to).messages == after
        assert found and found <= {before, after}, (to, found)
        found.clear()
        topic.send(bytes(40_000))
        sent, before = sent + 1, after + 1
        crashed.bay.cleanup()
        assert found and found <= {after, before}, (to, found)
        found.clear()
    crashed.bay.close()
    crashed.end()
    assert found <= {before} and crashed.states >= 30
