"""StoreLayer: the store on disk, tmp-storage, and the disk and windows that both are made with."""

from __future__ import annotations

from dataclasses import dataclass

from ....cache.spill.overflow import Overflow
from ....store.directory_store import DirectoryStore, StoreOptions
from ....store.disk.disk import Disk
from ....store.disk.thrifty_disk import ThriftyDisk
from ....store.ingest.ingest import open_and_ingest
from ....store.maintenance.archive import Archive
from ....store.metadata.store import MetadataStore
from ....store.recovery.recovery import RecoveryReport
from ....store.state.property_table import PropertyTable, limit_bytes_of
from ...admission.deduplication import DuplicateWindows
from ...config.memory_plan import (
    ATTEMPTS_BYTES,
    DIRECTORY_BYTES_MAX,
    READ_BUFFER_BYTES,
    RELOCATION_BYTES,
    WRITE_BUFFER_BYTES,
    temp_limit_bytes,
)
from .foundation import Foundation
from .surroundings import Surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLayer:
    """The store of persistent messages, tmp-storage for the others, and what both are made with."""

    disk: Disk
    directory: DirectoryStore
    """Has all parts of the store on disk. Each owner above gets only the parts that it uses."""
    windows: DuplicateWindows
    overflow: Overflow

    def audit(self) -> dict[str, int]:
        """Check the host properties, and return what each part of the store holds in RAM. Requires: the lock."""
        index, properties = self.directory.index, self.directory.host_properties
        properties._check()
        return {
            "index": index.held_bytes,
            "attempts": index.delivery_count_table.held_bytes,
            "destinations": index.lanes_charge + self.directory.subscriptions.charge_bytes,
            "duplicates": self.windows.held_bytes,
            "properties": properties.held_bytes,
        }


def make_store_layer(foundation: Foundation, surroundings: Surroundings) -> StoreLayer:
    """Make the store, which `open_store` opens, and tmp-storage. Until then most parts of the store do not exist."""
    disk = ThriftyDisk(surroundings.disk)
    budget = foundation.budget
    windows = DuplicateWindows(
        foundation.settings,
        foundation.policies,
        budget.holder("duplicates"),
        foundation.shares,
        foundation.late_calls.make_room,
    )
    directory = _make_directory_store(foundation, surroundings, disk, windows)
    budget.holder("read_buffers", guaranteed_bytes=READ_BUFFER_BYTES)
    overflow = _make_overflow(foundation, disk)
    disk.add_giver(directory.give_up_readers)
    disk.add_giver(overflow.storage.give_up_readers)
    assert budget.free_bytes == foundation.shares.available_bytes
    return StoreLayer(disk=disk, directory=directory, windows=windows, overflow=overflow)


def open_store(foundation: Foundation, store_layer: StoreLayer) -> RecoveryReport:
    """Open the store, and ingest the import sets that wait for it. Raises what `open_and_ingest` raises."""
    settings = foundation.settings
    return open_and_ingest(
        store_layer.disk,
        store_layer.directory,
        foundation.monitor.lock,
        foundation.budget.holders["read_buffers"],
        message_bytes_max=min(settings.max_message_size_bytes, settings.memory_limit_bytes),
    )


def _make_directory_store(
    foundation: Foundation, surroundings: Surroundings, disk: Disk, windows: DuplicateWindows
) -> DirectoryStore:
    settings, shares, budget = foundation.settings, foundation.shares, foundation.budget

    def make_metadata_store(store_id: bytes) -> MetadataStore:
        return surroundings.metadata(store_id, shares.metadata_bytes)

    properties = PropertyTable(
        budget.holder("properties"), limit_bytes_of(settings.max_file_length_bytes), foundation.late_calls.make_room
    )
    return DirectoryStore(
        disk,
        make_metadata_store,
        StoreOptions(
            index_cache_bytes=shares.index_cache_bytes,
            max_file_bytes=settings.max_file_length_bytes,
            max_checkpoint_adds=settings.max_checkpoint_adds,
            verifies_all=settings.verify_on_open,
            store_limit=settings.store_limit_share or settings.store_limit_bytes,
            accepts_loss=settings.on_missing_data_log == "report",
        ),
        foundation.clock,
        state_lock=foundation.monitor.lock,
        account=budget.holders["index"],
        archive=Archive(disk, surroundings.archive_disk) if settings.archive_data_logs else None,
        relocation_account=budget.holder("relocation", guaranteed_bytes=RELOCATION_BYTES),
        duplicates=windows.persistent,
        host_properties=properties,
        attempts_account=budget.holder("attempts", guaranteed_bytes=ATTEMPTS_BYTES),
        existing=foundation.existing,
        on_progress=surroundings.on_progress,
    )


def _make_overflow(foundation: Foundation, disk: Disk) -> Overflow:
    settings, clock = foundation.settings, foundation.clock
    return Overflow(
        disk,
        foundation.budget,
        limit_bytes=temp_limit_bytes(settings, disk),
        max_file_bytes=settings.max_file_length_bytes,
        random_salt=lambda: int.from_bytes(clock.random_bytes(4), "little"),
        paid_buffer_bytes=WRITE_BUFFER_BYTES - DIRECTORY_BYTES_MAX,
        make_room=foundation.late_calls.make_room,
    )
