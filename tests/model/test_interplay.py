"""All features at once, with power cuts and kills in between: what each was tested for alone holds beside the others.

A seed draws a workload and the settings of each open. At random calls of its
disk the state of just then is forked, the power cut or the process killed,
and what the reopened store holds compared with what the model allows. Some go
on from there. A failure names its seed, and `Run(seed, sync).run()` repeats it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from crash_workload import canonical
from interplay_model import QUEUES, TOPICS, UNLIMITED, Model, check_stored, end_prepared, found_in
from interplay_workload import Workload
from manual_clock import ManualClock
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore
from test_crash import POWER_CUTS
from test_topic_crash import sequences
from test_transaction_crash import same

from forebay import DestinationPolicy, Forebay, Message, Settings, StoreFailed, StoreFull
from forebay.dispatch.config.settings import SyncMode
from forebay.dispatch.engine.engine import Engine
from forebay.store.disk.disk import File
from forebay.store.disk.layout import JOURNAL
from forebay.store.format.record import (
    ACK,
    COMMIT,
    DESTINATION,
    DROP,
    MESSAGE,
    PREPARE,
    ROLLBACK,
    STATE,
    SUBSCRIBE,
    SURVIVORS,
    UNSUBSCRIBE,
)
from forebay.store.journal.data_log import DATA_LOG_HEADER_BYTES, Walk, decode_data_log_header
from forebay.store.maintenance import relocation
from forebay.store.metadata.memory import MemoryMetadataStore
from forebay.store.metadata.store import MetadataStore

FIRST_SEED = int(os.environ.get("FOREBAY_SEED", "1"))
SEEDS_APART = 1_000_000
STATES = 300
SOAK_STATES = 30_000
CRASHES_MAX = 3
SYNC_MODES: tuple[SyncMode, ...] = ("always", "interval", "never")
MARK = "kr-store/state/mark"


class Run:
    """One seed's workload, cut at its calls."""

    def __init__(self, seed: int, sync: SyncMode) -> None:
        self._seed, self._sync = seed, sync
        self._random = Random(seed)
        self._place = ""
        self._share = Random(seed).choice((0.01, 0.05, 0.2))
        """Of the calls, how many are looked at."""
        self._settings = Settings(
            background=False,
            memory_limit="8MiB",
            index_cache_size="256KiB",
            max_file_length="64KiB",
            sync=sync,
            policies={">": DestinationPolicy(max_attempts=None)},
        )
        self.states = self.damaged = self.refused = self.ended = 0

    def run(self) -> Run:
        # Most stores here are too small to be relocated in by themselves.
        allowed = 0 if self._seed % 4 else relocation.DATA_LOGS_ALLOWED
        try:
            with patch.object(relocation, "DATA_LOGS_ALLOWED", allowed), patch.object(relocation, "LIVE_SHARE", 1):
                self._live(SimulatedDisk(), SimulatedMetadataStore(), Model(self._seed), 1)
        except Exception as error:
            raise AssertionError(f"seed {self._seed}, sync={self._sync}, {self._place}: {error!r}") from error
        return self

    # ------------------------------------------------------------------ opening

    def _drawn(self) -> Settings:
        random = self._random
        return replace(
            self._settings,
            use_vectored_io=random.random() < 0.7,
            persistent_index=random.random() < 0.85,
            archive_data_logs=random.random() < 0.3,
            verify_on_open=random.random() < 0.1,
            on_missing_data_log="report" if random.random() < 0.15 else "refuse",
        )

    def _open(
        self,
        disk: SimulatedDisk,
        metadata: SimulatedMetadataStore,
        clock: ManualClock | None = None,
        **fields: Any,
    ) -> Forebay:
        settings = replace(self._drawn(), **fields)

        def make(store_id: bytes, cache_bytes: int) -> MetadataStore:
            if settings.persistent_index:
                return metadata
            metadata.clear()
            return MemoryMetadataStore(cache_bytes)

        clock = clock or ManualClock(self._random.getrandbits(64))
        try:
            bay = Forebay(Engine(disk, make, settings, clock), None)
        except (StoreFull, StoreFailed):
            if disk.capacity_bytes == UNLIMITED:
                raise
            self.refused += 1
            disk.capacity_bytes = UNLIMITED
            bay = Forebay(Engine(disk, make, settings, clock), None)
        return bay

    # ------------------------------------------------------------------ living

    def _live(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, model: Model, crashes: int) -> None:
        random = self._random
        clock = ManualClock(random.getrandbits(64))
        index = [metadata]

        def crash(call: str, name: str) -> None:
            if random.random() < self._share:
                place, self._place = self._place, f"{self._place}/{call} {name}"
                self._crash(disk, index[0], model, crashes)
                self._place = place

        def reopen(is_index_lost: bool) -> Forebay:
            try:
                workload.bay.close()
            except (StoreFull, StoreFailed):
                if disk.capacity_bytes == UNLIMITED:
                    raise
                self.refused += 1
            if is_index_lost:
                index[0] = SimulatedMetadataStore()
                if random.random() < 0.5:
                    disk.on_call = None
                    disk.remove(MARK)
                    disk.sync_directory(MARK.rpartition("/")[0])
                    disk.on_call = crash
            return self._open(disk, index[0], clock)

        def set_room(room: int | None) -> None:
            used = disk.capacity_bytes - disk.free_bytes()
            disk.capacity_bytes = UNLIMITED if room is None else used + room

        disk.on_call = crash
        bay = self._open(disk, metadata, clock)
        if crashes > 1:
            found = self._found(self._open(disk.crash_process(), same(metadata)), model)
            model.check(found, loses=True)
            model.settle(found)
        workload = Workload(model, random, bay, reopen=reopen, advance=clock.advance, set_room=set_room)
        before = self._place
        for step in range(random.randint(20, 200) if crashes == 1 else random.randint(5, 40)):
            self._place = f"{before} step {step}"
            try:
                workload.step()
            finally:
                self._place += f" {workload.name}"
            clock.advance(random.choice((0.0, 0.2, 2.0)))
            if random.random() < 0.1:
                index[0].synced()
                check_stored(workload.bay)
        disk.on_call = None
        self._place = f"{before} end"
        check_stored(workload.bay)
        self.refused += workload.refused

    def _found(self, bay: Forebay, model: Model, **fields: Any) -> frozenset[Any]:
        assert bay.recovery.damaged == () or fields, "damage where there is none"
        return found_in(bay, model, **fields)

    # ------------------------------------------------------------------ crashing

    def _crash(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, model: Model, crashes: int) -> None:
        random = self._random
        if random.random() < 0.4:
            self._place += " KILL"
            image, left, loses = disk.crash_process(), same(metadata), False
        elif disk.has_unsynced:
            mode = random.choice(POWER_CUTS)
            self._place += f" {mode.name}"
            image, left, loses = disk.crash_power(random, mode), metadata.crash(random), self._sync != "always"
        else:
            return
        if random.random() < 0.7:
            image.capacity_bytes = UNLIMITED
        self._examine(image, left, model.fork(), crashes, loses=loses)

    def _examine(
        self, image: SimulatedDisk, metadata: SimulatedMetadataStore, model: Model, crashes: int, *, loses: bool
    ) -> None:
        random = self._random
        self.states += 1
        if crashes < CRASHES_MAX and random.random() < 0.05:
            model.has_lost |= loses
            self._live(image, metadata, model, crashes + 1)
            return
        bay = self._open(image, metadata)
        image.capacity_bytes = UNLIMITED
        left = image.crash_process()
        check_stored(bay)
        assert bay.recovery.prepared == len(bay.prepared())
        found = self._found(bay, model)
        model.check(found, loses=loses)
        model.settle(found)
        fate = random.random()
        if fate < 0.2:
            self._recover_again(left, metadata, model)
        elif fate < 0.3:
            self._place += " cleaned"
            bay.cleanup()
            check_stored(bay)
            self._recover_again(image.crash_process(), metadata, model)
        elif fate < 0.4:
            self._end_prepared(left, same(metadata), model)
        elif fate < 0.45:
            self._damage(left, metadata, model)

    def _recover_again(self, image: SimulatedDisk, metadata: SimulatedMetadataStore, model: Model) -> None:
        """Twice is once, and the index made from the journal is the one that was kept."""
        self._place += " again"
        fields: dict[str, Any] = {"persistent_index": True}
        kept = self._open(image.crash_process(), same(metadata), **fields)
        rebuilt = self._open(image.crash_process(), SimulatedMetadataStore(), **fields)
        assert described(kept) == described(rebuilt)
        for bay in (kept, rebuilt):
            model.check(self._found(bay, model), loses=False)

    def _end_prepared(self, image: SimulatedDisk, metadata: SimulatedMetadataStore, model: Model) -> None:
        """What survived is given its outcome, which holds also after a loss of the index."""
        random = self._random
        self._place += " ended"
        bay = self._open(image, random.choice((metadata, SimulatedMetadataStore())))
        for xid in model.prepared:
            self.ended += 1
            assert end_prepared(bay, model, xid, commits=random.random() < 0.5)
        if random.random() < 0.5:
            bay.cleanup()
        assert not bay.prepared()
        check_stored(bay)
        model.check(self._found(bay, model), loses=False)
        model.check(self._found(self._open(image.crash_process(), SimulatedMetadataStore()), model), loses=False)

    # ------------------------------------------------------------------ damage

    def _damage(self, image: SimulatedDisk, metadata: SimulatedMetadataStore, model: Model) -> None:
        """A data log is damaged or gone: the store opens all the same, and is an ordinary one from then on."""
        random = self._random
        self.damaged += 1
        disk = image.crash_process()
        names = [name for name in disk.list(JOURNAL) if name.endswith(".log")]
        name = f"{JOURNAL}/{random.choice(names)}"
        self._place += f" {name}"
        kind = random.choice(KINDS)
        file = disk.open(name)
        if random.random() < 0.2:
            self._place += " gone"
            disk.remove(name)
            disk.sync_directory(JOURNAL)
        elif places := _records(file, kind):
            at, length = random.choice(places)
            self._place += f" kind {kind} at {at}"
            file.seek(at + random.randrange(length))
            file.append(b"\xff\x00\xff")
            file.sync()
        else:
            self._place += " bytes"
            file.seek(random.randrange(file.size()))
            file.append(random.randbytes(40))
            file.sync()
        left = random.choice((same(metadata), SimulatedMetadataStore()))
        was_read = left.load() is None
        fields: dict[str, Any] = {"persistent_index": True, "verify_on_open": False, "on_missing_data_log": "report"}
        bay = self._open(disk, left, **fields)
        check_stored(bay)
        found = found_in(bay, model, is_damaged=True)
        model.settle(found)
        fields["on_missing_data_log"] = random.choice(("refuse", "report"))
        self._place += " repaired"
        # What the first open had no reason to read may still be damaged.
        again = self._open(disk.crash_process(), SimulatedMetadataStore() if was_read else same(left), **fields)
        assert again.recovery.damaged == ()
        model.check(found_in(again, model, is_damaged=True), loses=False)
        self._place += " used"
        use(again)


KINDS = (STATE, DESTINATION, SUBSCRIBE, UNSUBSCRIBE, PREPARE, COMMIT, ROLLBACK, SURVIVORS, ACK, MESSAGE, DROP)


def _records(file: File, kind: int) -> list[tuple[int, int]]:
    """Offset and length of the heads of those of a kind."""
    header = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES))
    walk = Walk(file, header, DATA_LOG_HEADER_BYTES)
    return [(offset, len(head)) for offset, record, head in walk if record.kind == kind]


def use(bay: Forebay) -> None:
    """All that a store does, done once more."""
    for n, prepared in enumerate(bay.prepared()):
        (prepared.rollback if n % 2 else prepared.commit)()
    for name in QUEUES:
        with bay.transaction() as transaction, bay.queue(name).subscribe(prefetch=0) as consumer:
            bay.queue(name).send(b"in", transaction=transaction)
            bay.queue(name).send(b"alone")
            consumer.ack(consumer.take(3), transaction=transaction)
    for name in TOPICS:
        consumer = bay.topic(name).subscribe(durable="another", prefetch=0)
        for subscription in bay.topic(name).subscriptions():
            depth = bay.topic(name).statistics().subscriptions[subscription].depth
            bay.topic(name).send(b"once", headers={"kind": 0})
            assert bay.topic(name).statistics().subscriptions[subscription].depth == depth + 1
        bay.topic(name).send_many(Message(b"more", priority=priority) for priority in range(10))
        while taken := consumer.take(10):
            consumer.ack(taken)
        consumer.close()
    bay.cleanup()
    bay.step()
    check_stored(bay)


def described(bay: Forebay) -> Any:
    """What two indexes over one journal must agree on."""
    store = bay._engine.store
    with bay._engine.lock:
        lanes = {number: places for number, places in canonical(store).items() if places[0]}
        subscriptions = {
            number: (
                subscriber.facts,
                [sequences(lane) for lane in subscriber.lanes if lane is not None],
            )
            for number, subscriber in store.subscriptions.by_number.items()
        }
        branches = [
            (branch.number, branch.xid, list(branch), list(branch.runs())) for branch in store.branches.prepared
        ]
        pending = {data_log: use.pending_messages for data_log, use in store.index.uses.items() if use.pending_messages}
        return lanes, subscriptions, branches, pending, store.subscriptions.next_number


def run_seeds(first_seed: int, sync: SyncMode, states: int) -> None:
    """Seed after seed, until so many states were looked at."""
    seed, seen = first_seed, 0
    while seen < states:
        seen += Run(seed, sync).run().states
        seed += 1
    print(f"seeds {first_seed} to {seed - 1}, sync={sync}: {seen} states")


@pytest.mark.parametrize("sync", SYNC_MODES)
def test_nothing_confirmed_is_lost_and_nothing_settled_comes_back_whatever_was_combined(
    sync: SyncMode,
) -> None:
    run_seeds(FIRST_SEED, sync, STATES)


def test_prepared_transactions_come_in_the_order_in_which_they_were_begun_without_the_index_too() -> None:
    """Seed 207: one without slices was told of by its prepare record alone."""
    store = SimulatedBay()
    first, second = store.bay.transaction(), store.bay.transaction()
    store.queue().send(b"in", transaction=second)
    store.queue("prices").send(bytes(300_000), transaction=second)  # more than waits in RAM
    second.prepare(b"second")
    first.prepare(b"first")
    for is_index_lost in (False, True):
        store.crash(is_index_lost=is_index_lost)
        assert [transaction.xid for transaction in store.bay.prepared()] == [b"first", b"second"]


@pytest.mark.soak
@pytest.mark.parametrize("sync", SYNC_MODES)
def test_soak_of_everything_at_once(sync: SyncMode) -> None:
    """FOREBAY_SEED draws others than the last time."""
    run_seeds(FIRST_SEED + SEEDS_APART, sync, SOAK_STATES)
