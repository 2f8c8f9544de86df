"""All features at once, with power cuts and kills in between: what each was tested for alone holds beside the others.

A seed draws a workload and the settings of each open; see crashing.py. What the
reopened store holds is compared with what the model allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from crash_workload import canonical
from crashing import POWER_CUTS, CrashingWorkload, Left, Life, same
from extents import sequences
from inside import inside, open_forebay
from interplay_model import QUEUES, TOPICS, UNLIMITED, Model, check_stored, end_prepared, found_in
from interplay_workload import PENDING_MAX, WEIGHTS, Workload
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Forebay, Message, Settings, StoreFailed, StoreFull
from forebay.dispatch.config.settings import SyncMode
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
from forebay.store.journal.data_log import DATA_LOG_HEADER_BYTES, RecordWalk, decode_data_log_header
from forebay.store.maintenance.relocation import RelocationTarget
from forebay.store.metadata.memory_store import MemoryMetadataStore
from forebay.store.metadata.metadata_store import MetadataStore
from forebay.testing import ManualClock

MARK = "kr-store/state/mark"


class Interplay(CrashingWorkload[Model]):
    kill_share = 0.4
    power_cuts = (*POWER_CUTS[:6], PowerCut.STALE, *POWER_CUTS[6:])
    going_on_share = 0.05
    steps = (20, 200)
    weights: Mapping[str, Sequence[int]] = WEIGHTS
    """By operation, the weights of which each seed draws one."""
    pending_max = PENDING_MAX

    def __init__(self, seed: int, sync: SyncMode) -> None:
        super().__init__(seed, sync, memory_limit="8MiB")
        self.call_share = Random(seed).choice((0.01, 0.05, 0.2))

    def new_model(self) -> Model:
        return Model(self.seed)

    # ------------------------------------------------------------------ opening

    def _drawn(self) -> Settings:
        random = self.random
        return replace(
            self.settings,
            use_vectored_io=random.random() < 0.7,
            persistent_index=random.random() < 0.85,
            archive_data_logs=random.random() < 0.3,
            verify_on_open=random.random() < 0.1,
            on_missing_data_log="report" if random.random() < 0.15 else "refuse",
        )

    def open(
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

        clock = clock or ManualClock(self.random.getrandbits(64))
        # Most stores here are too small to be relocated in by themselves.
        target = RelocationTarget(live_factor=1)
        if self.seed % 4:
            target = target._replace(data_logs_allowed=0)
        try:
            return open_forebay(disk, make, settings, clock, relocation_target=target)
        except (StoreFull, StoreFailed):
            if disk.capacity_bytes == UNLIMITED:
                raise
            disk.capacity_bytes = UNLIMITED
            return open_forebay(disk, make, settings, clock, relocation_target=target)

    # ------------------------------------------------------------------ living

    def worker(self, life: Life[Model]) -> Callable[[], object]:
        disk, random = life.disk, self.random

        def reopen(is_index_lost: bool) -> Forebay:
            try:
                life.bay.close()
            except (StoreFull, StoreFailed):
                if disk.capacity_bytes == UNLIMITED:
                    raise
            if is_index_lost:
                life.metadata = SimulatedMetadataStore()
                if random.random() < 0.5:
                    on_call, disk.on_call = disk.on_call, None
                    disk.remove(MARK)
                    disk.sync_directory(MARK.rpartition("/")[0])
                    disk.on_call = on_call
            life.bay = self.open(disk, life.metadata, life.clock)
            return life.bay

        def set_room(room: int | None) -> None:
            used = disk.capacity_bytes - disk.free_bytes()
            disk.capacity_bytes = UNLIMITED if room is None else used + room

        def step() -> None:
            try:
                workload.step()
            finally:
                self.place += f" {workload.name}"
            life.clock.advance(random.choice((0.0, 0.2, 2.0)))

        workload = Workload(
            life.model,
            random,
            life.bay,
            reopen=reopen,
            advance=life.clock.advance,
            set_room=set_room,
            weights=self.weights,
            pending_max=self.pending_max,
        )
        return step

    def between(self, life: Life[Model]) -> None:
        check_stored(life.bay)

    def settle(self, bay: Forebay, model: Model) -> None:
        found = self._found(bay, model)
        model.check(found, loses=True)
        model.settle(found)

    def _found(self, bay: Forebay, model: Model, **fields: Any) -> frozenset[Any]:
        assert bay.recovery.damaged == () or fields, "damage where there is none"
        return found_in(bay, model, **fields)

    # ------------------------------------------------------------------ crashing

    def examine(self, left: Left, life: Life[Model]) -> None:
        if self.random.random() < 0.7:
            left.disk.capacity_bytes = UNLIMITED
        super().examine(left, life)

    def _loses(self, left: Left) -> bool:
        return not left.is_kill and self.sync != "always"

    def goes_on(self, left: Left, model: Model) -> None:
        model.has_lost |= self._loses(left)

    def check(self, left: Left, model: Model) -> None:
        image, metadata = left.disk, left.metadata
        bay = self.open(image, metadata)
        image.capacity_bytes = UNLIMITED
        untouched = image.crash_process()
        check_stored(bay)
        assert bay.recovery.prepared == len(bay.prepared())
        found = self._found(bay, model)
        model.check(found, loses=self._loses(left))
        model.settle(found)
        fate = self.random.random()
        if fate < 0.2:
            self._recover_again(untouched, metadata, model)
        elif fate < 0.3:
            self.place += " cleaned"
            bay.cleanup()
            check_stored(bay)
            self._recover_again(image.crash_process(), metadata, model)
        elif fate < 0.4:
            self._end_prepared(untouched, same(metadata), model)
        elif fate < 0.45:
            self._damage(untouched, metadata, model)

    def _recover_again(self, image: SimulatedDisk, metadata: SimulatedMetadataStore, model: Model) -> None:
        """Twice is once, and the index made from the journal is the one that was kept."""
        self.place += " again"
        fields: dict[str, Any] = {"persistent_index": True}
        kept = self.open(image.crash_process(), same(metadata), **fields)
        rebuilt = self.open(image.crash_process(), SimulatedMetadataStore(), **fields)
        assert described(kept) == described(rebuilt)
        for bay in (kept, rebuilt):
            model.check(self._found(bay, model), loses=False)

    def _end_prepared(self, image: SimulatedDisk, metadata: SimulatedMetadataStore, model: Model) -> None:
        """Give the prepared transactions their outcome. It must hold after a loss of the index, too."""
        random = self.random
        self.place += " ended"
        bay = self.open(image, random.choice((metadata, SimulatedMetadataStore())))
        for xid in model.prepared:
            assert end_prepared(bay, model, xid, commits=random.random() < 0.5)
        if random.random() < 0.5:
            bay.cleanup()
        assert not bay.prepared()
        check_stored(bay)
        model.check(self._found(bay, model), loses=False)
        model.check(self._found(self.open(image.crash_process(), SimulatedMetadataStore()), model), loses=False)

    # ------------------------------------------------------------------ damage

    def _damage(self, image: SimulatedDisk, metadata: SimulatedMetadataStore, model: Model) -> None:
        """Damage or remove a data log. The store must open, and be an ordinary one from then on."""
        random = self.random
        disk = image.crash_process()
        names = [name for name in disk.list(JOURNAL) if name.endswith(".log")]
        name = f"{JOURNAL}/{random.choice(names)}"
        self.place += f" {name}"
        kind = random.choice(KINDS)
        file = disk.open(name)
        if random.random() < 0.2:
            self.place += " gone"
            disk.remove(name)
            disk.sync_directory(JOURNAL)
        elif places := _records(file, kind):
            at, length = random.choice(places)
            self.place += f" kind {kind} at {at}"
            file.seek(at + random.randrange(length))
            file.append(b"\xff\x00\xff")
            file.sync()
        else:
            self.place += " bytes"
            file.seek(random.randrange(file.size()))
            file.append(random.randbytes(40))
            file.sync()
        left = random.choice((same(metadata), SimulatedMetadataStore()))
        was_read = left.load() is None
        fields: dict[str, Any] = {"persistent_index": True, "verify_on_open": False, "on_missing_data_log": "report"}
        bay = self.open(disk, left, **fields)
        check_stored(bay)
        found = found_in(bay, model, is_damaged=True)
        model.settle(found)
        fields["on_missing_data_log"] = random.choice(("refuse", "report"))
        self.place += " repaired"
        # Bytes that the first open did not read may still be damaged.
        again = self.open(disk.crash_process(), SimulatedMetadataStore() if was_read else same(left), **fields)
        assert again.recovery.damaged == ()
        model.check(found_in(again, model, is_damaged=True), loses=False)
        self.place += " used"
        use(again)


KINDS = (STATE, DESTINATION, SUBSCRIBE, UNSUBSCRIBE, PREPARE, COMMIT, ROLLBACK, SURVIVORS, ACK, MESSAGE, DROP)


def _records(file: File, kind: int) -> list[tuple[int, int]]:
    """Offset and length of the heads of those of a kind."""
    header = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES))
    walk = RecordWalk(file, header, DATA_LOG_HEADER_BYTES)
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
    """Return everything on which two indexes over one journal must agree."""
    store = inside(bay).store
    with inside(bay).lock:
        lanes = {number: places for number, places in canonical(store).items() if places[0]}
        subscriptions = {
            number: (
                subscriber.facts,
                [found for lane in subscriber.lanes if lane is not None and (found := sequences(lane))],
            )
            for number in sorted(store.subscriptions.numbers())
            if (subscriber := store.subscriptions.for_report(number)) is not None
        }
        branches = [
            (branch.number, branch.xid, list(branch), list(branch.runs())) for branch in store.branches.prepared
        ]
        pending = {
            data_log: use.pending_messages
            for data_log, use in store.index.data_log_uses.items()
            if use.pending_messages
        }
        return lanes, subscriptions, branches, pending, store.subscriptions.next_number
