"""Relocation and power cuts: at every call that changes the disk, nothing is lost and nothing comes back.

One life sends, acknowledges and cleans up until messages have moved, some of
them twice, and chains of acks are cut. At each changing call of its disk the
power is cut in a fork, and the next process must find what was confirmed,
with the index that was left, with older ones, and with none.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from crash_workload import canonical, found_in
from crashing import POWER_CUTS, SETTINGS, SYNC_MODES, same
from inside import open_forebay
from message_stores import OpenStore
from relocating import begin_data_log, name_survivors, opened_on, relocate
from sampling import sampled
from simulated_disk import MUTATING_CALLS, PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Delivery, Forebay, Message
from forebay.dispatch.config.settings import SyncMode
from forebay.testing import ManualClock


class Life:
    """The calls on one store, and the messages that the next process must find after a crash at any moment."""

    def __init__(self, seed: int, *, syncs_always: bool) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk()
        self.metadata = SimulatedMetadataStore()
        self.syncs_always = syncs_always
        self.opened = opened_on(self.disk, self.metadata, index_cache_bytes=100_000)
        self.opened.store.syncer.sync()
        self.lanes = [self.opened.lane(name) for name in ("orders", "prices")]
        self.opened.store.syncer.sync()
        # Confirmed, and its ack never asked for; durable where each call is synced.
        self.pending: dict[tuple[int, int], bytes] = {}
        # Its ack was confirmed, and is durable where each call is synced.
        self.gone: set[tuple[int, int]] = set()
        # What the call in flight is about.
        self.open: set[tuple[int, int]] = set()
        self.unsynced_gone: set[tuple[int, int]] = set()
        self.unsynced: set[tuple[int, int]] = set()
        self.states = 0
        self._share = 1.0
        self.disk.on_call = self._maybe_crash

    def _maybe_crash(self, call: str, name: str) -> None:
        if call not in MUTATING_CALLS or self.random.random() > self._share:
            return
        self.states += 1
        image = self.disk.crash_power(self.random, self.random.choice(POWER_CUTS))
        if not self.syncs_always and self.random.random() < 0.3:
            image = self.disk.crash_process()
        self._examine(image, self.metadata.crash(self.random))
        self._examine(image.crash_process(), SimulatedMetadataStore())

    def _examine(self, image: SimulatedDisk, metadata: SimulatedMetadataStore) -> None:
        next_life = opened_on(image, metadata, index_cache_bytes=100_000)
        found = self._found(next_life)
        may_be_open = self.open | self.unsynced | self.unsynced_gone
        lost = self.pending.keys() - found.keys() - may_be_open
        assert not lost, f"lost: {sorted(lost)}"
        back = found.keys() & self.gone - may_be_open
        assert not back, f"acknowledged and back: {sorted(back)}"
        assert all(self.pending.get(key, body) == body for key, body in found.items())
        next_life.check()
        if self.random.random() < 0.2:
            # Recovering again gives the same, and so does a cleanup that follows.
            image = image.crash_process()
            again = opened_on(image, metadata, index_cache_bytes=100_000)
            assert self._found(again) == found
            again.store.cleanup.run()
            assert self._found(again) == found
            rebuilt = opened_on(image.crash_power(self.random, PowerCut.SYNCED), index_cache_bytes=100_000)
            assert self._found(rebuilt) == found
            assert {n: lane for n, lane in canonical(rebuilt.store).items() if lane[0]} == {
                n: lane for n, lane in canonical(again.store).items() if lane[0]
            }

    def _found(self, opened: OpenStore) -> dict[tuple[int, int], bytes]:
        lanes = list(opened.store.index.lanes.values())
        return {(lane.number, sequence): body or b"" for lane in lanes for sequence, _, body, _ in opened.pending(lane)}

    def _confirm(self) -> None:
        if self.syncs_always:
            self.opened.store.syncer.sync()

    def synced(self) -> None:
        self.unsynced.clear()
        self.unsynced_gone.clear()

    def send(self, count: int, size: int) -> None:
        lane = self.random.choice(self.lanes)
        count = min(count, lane.slice_capacity)
        bodies = [self.random.randbytes(size) for _ in range(count)]
        keys = [(lane.number, lane.next_sequence + n) for n in range(count)]
        self.open = set(keys)
        self.opened.add(*bodies, lane=lane)
        if not self.syncs_always:
            self.unsynced.update(keys)
        self._confirm()
        self.pending.update(zip(keys, bodies, strict=True))
        self.open = set()

    def acknowledge(self, share: float) -> None:
        keys = [key for key in self.pending if self.random.random() < share]
        for lane in self.lanes:
            runs = sorted(sequence for number, sequence in keys if number == lane.number)
            for sequence in runs:
                key = lane.number, sequence
                self.open = {key}
                self.opened.remove(sequence, lane=lane)
                if not self.syncs_always:
                    self.unsynced_gone.add(key)
                self._confirm()
                del self.pending[key]
                self.gone.add(key)
                self.open = set()

    def run(self, share: float) -> None:
        """Crash at that share of the calls outside of relocation and cleanup, and at all calls of those."""
        for _ in range(4):
            self._share = share
            for _ in range(self.random.randint(1, 4)):
                for _ in range(self.random.randint(1, 6)):
                    self.send(self.random.choice((1, 1, 5, 30)), self.random.choice((20, 2000, 9000)))
                if self.random.random() < 0.7:
                    self.acknowledge(self.random.choice((0.1, 0.6, 0.95)))
                begin_data_log(self.opened)
            self._share = 1.0
            self.opened.store.checkpointer.checkpoint()
            self.synced()
            sealed = sorted(self.opened.store.cleanup.remover.relocatable())
            for data_log in self.random.sample(sealed, min(len(sealed), 2)):
                self.random.choice((relocate, name_survivors))(self.opened, data_log)
            if self.random.random() < 0.5:
                begin_data_log(self.opened)
            self.opened.store.cleanup.run()
            self.synced()


@pytest.mark.parametrize("seed", sampled(range(12), 3))
@pytest.mark.parametrize("syncs_always", [True, False])
def test_power_cut_at_any_call_of_relocation_and_cleanup(seed: int, syncs_always: bool) -> None:
    life = Life(seed, syncs_always=syncs_always)
    life.run(0.05)
    assert life.states > 20
    assert life.opened.store.cleanup.relocation.messages or life.opened.store.cleanup.relocation.appended_bytes


@pytest.mark.parametrize("sync", SYNC_MODES)
def test_power_cut_and_kill_at_any_call_of_a_cleanup_of_the_whole_library(sync: SyncMode) -> None:
    """Everything was made durable before; what the cleanup moves is neither lost nor doubled, in its order."""
    random = Random(1)
    disk, metadata = SimulatedDisk(), SimulatedMetadataStore()

    def opened(disk: SimulatedDisk, metadata: SimulatedMetadataStore) -> Forebay:
        return open_forebay(disk, metadata, replace(SETTINGS, sync=sync), ManualClock())

    bay = opened(disk, metadata)
    queue = bay.queue("orders")
    consumer = queue.subscribe(prefetch=1_000_000)
    for n in range(8):
        queue.send_many(Message(bytes(1000) + b"%d" % n) for _ in range(55))
        taken: list[Delivery] = []
        while len(taken) < 55:
            taken += consumer.take(55)
        del taken[20:23]
        consumer.ack(taken)
    bay.checkpoint()
    expected = {
        name: [d.id for d in found] for name, found in found_in(opened(disk.crash_process(), same(metadata))).items()
    }
    assert len(expected["orders"]) == 24
    states = 0

    def crash(call: str, name: str) -> None:
        nonlocal states
        for image in (disk.crash_process(), *(disk.crash_power(random, cut) for cut in dict.fromkeys(POWER_CUTS))):
            states += 1
            left = random.choice((metadata.crash(random), SimulatedMetadataStore()))
            found = found_in(opened(image, left))
            assert {name: [d.id for d in deliveries] for name, deliveries in found.items()} == expected

    disk.on_call = crash
    report = bay.cleanup()
    disk.on_call = None
    assert report.relocated_messages >= 12 and len(report.remaining) <= 3 and states > 100
