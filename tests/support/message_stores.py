"""Helpers for tests of the store layer: an open DirectoryStore without threads, and its pending messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulated_metadata import SimulatedMetadataStore

from forebay.store.directory_store import DirectoryStore, StoreAccounts, StoreEnvironment, StoreOptions
from forebay.store.disk.disk import Disk
from forebay.store.environment.account import Unlimited
from forebay.store.environment.locks import OwnedLock
from forebay.store.format.contents import Contents
from forebay.store.index.data_log_use import DataLogUse
from forebay.store.index.destination_lane import DestinationLane
from forebay.store.index.journaled_lane import JournaledLane
from forebay.store.metadata.metadata_store import MetadataStore
from forebay.store.recovery.recovery import RecoveryReport
from forebay.store.store_opener import open_store
from forebay.store.stored_message import StoredMessage
from forebay.testing import ManualClock


class OpenStore:
    """One life of a store. Another OpenStore on the same disk stands for the next process."""

    def __init__(self, disk: Disk, metadata: MetadataStore, *, clock: ManualClock | None = None, **fields: Any) -> None:
        self.disk = disk
        self.metadata = metadata
        self.clock = clock or ManualClock()
        self.lock = OwnedLock()
        self.account = Unlimited()
        options: dict[str, Any] = {
            "index_cache_bytes": 1 << 20,
            "max_file_bytes": 8192,
            "max_checkpoint_adds": 10_000,
        }
        names = StoreOptions.__dataclass_fields__
        options |= {name: fields.pop(name) for name in list(fields) if name in names}
        environment = StoreEnvironment(
            disk=disk,
            metadata=lambda store_id: metadata,
            clock=self.clock,
            state_lock=self.lock,
            accounts=StoreAccounts(self.account, fields.pop("relocation_account", Unlimited())),
            **fields,
        )
        self.store: DirectoryStore
        self.report: RecoveryReport
        self.store, self.report = open_store(environment, StoreOptions(**options))

    def lane(self, name: str = "orders", priority: int = 4) -> DestinationLane:
        """Return a lane of a queue, which is created if it does not exist."""
        with self.lock:
            found = [destination for destination in self.store.destination_table.values() if destination.name == name]
            destination = found[0] if found else self.store.destination_writer.create(name)
            return self.store.index.ensure_lane(destination.number, priority)

    def add(self, *bodies: bytes, lane: DestinationLane | None = None) -> int:
        """Add one body like a single send, or several as one slice; return the first sequence."""
        lane = lane or self.lane()
        with self.lock:
            if len(bodies) == 1:
                return self.store.message_store.add(lane, self.clock.time_ms(), b"", bodies[0])
            contents = Contents.of((b"", body) for body in bodies)
            return self.store.message_store.append_slice(lane, self.clock.time_ms(), contents)

    def remove(self, first: int, last: int | None = None, lane: DestinationLane | None = None) -> int:
        lane = lane or self.lane()
        with self.lock:
            if last is None:
                return self.store.message_store.acknowledge_one(lane, first)
            return self.store.message_store.acknowledge(lane, first, last)

    def pending(self, lane: JournaledLane | None = None) -> list[StoredMessage]:
        """Return all pending messages of a lane, read from the journal. AssertionError: one is unreadable."""
        lane = lane or self.lane()
        found: list[StoredMessage] = []
        at = 0
        while True:
            with self.lock:
                run = lane.pending_run(at, 1 << 30)
                if run is None:
                    return found
                regions = self.store.message_store.plan(lane, [run])
            messages, unreadable = self.store.message_store.read(regions)
            assert not unreadable
            found += messages
            at = run[1] + 1

    def bodies(self, lane: JournaledLane | None = None) -> list[bytes | None]:
        return [body for _, _, body, _ in self.pending(lane)]

    def check(self) -> None:
        with self.lock:
            self.store.index._check()
            self.store.journal._check()
            assert self.store.index.held_bytes == self.account.held_bytes


def uses_of(**data_logs: tuple[int, set[int]] | tuple[int, set[int], set[int]]) -> dict[int, DataLogUse]:
    """Return uses by data log.

    log86=(3, {85}, {84}): three pending messages in data log 86, acks for messages in 85, and commits of some in 84.
    """
    uses = {}
    for name, (pending, acked, *committed) in data_logs.items():
        use = uses[int(name.removeprefix("log"))] = DataLogUse()
        use.pending_messages = pending
        use.acked_data_logs.update(acked)
        use.committed_data_logs.update(*committed)
    return uses


class WatchedIndex(SimulatedMetadataStore):
    """Synced by each commit, and does as told once."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0
        self.before_commit: Callable[[int], None] = lambda position: None

    def commit(self, position: int, *args: Any, **fields: Any) -> None:
        self.commits += 1
        self.before_commit(position)
        super().commit(position, *args, **fields)
        self.synced()


def fill_data_logs(opened: OpenStore, count: int) -> list[int]:
    """Seven or so messages of 1000 bytes a data log, until so many more are full. Returns the sequences sent."""
    newest = opened.store.journal.data_log + count
    sent = []
    while opened.store.journal.data_log < newest:
        sent.append(opened.add(b"x" * 1000))
    return sent
