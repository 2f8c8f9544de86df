"""StoreLayer: the store on disk, tmp-storage, and the disk and windows that both are made with."""

from __future__ import annotations

from dataclasses import dataclass

from ....cache.accounting import holder_names
from ....cache.accounting.shares import Shares
from ....cache.spill.overflow import Overflow
from ....store.directory_store import DirectoryStore, StoreAccounts, StoreEnvironment, StoreOptions
from ....store.disk.disk import Disk
from ....store.disk.thrifty_disk import ThriftyDisk
from ....store.ingest.ingest import open_and_ingest
from ....store.maintenance.archive import Archive
from ....store.maintenance.relocation import RelocationTarget
from ....store.metadata.metadata_store import MetadataStore
from ....store.recovery.recovery import RecoveryReport
from ....store.state.property_table import PropertyTable, limit_bytes_of
from ...admission.duplicate_windows import DuplicateWindows
from ...config.memory_plan import (
    ATTEMPTS_BYTES,
    DIRECTORY_BYTES_MAX,
    READ_BUFFER_BYTES,
    RELOCATION_BYTES,
    WRITE_BUFFER_BYTES,
    temp_limit_bytes,
)
from ...config.settings import Settings
from .environment import Environment
from .foundation import FoundationLayer


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLayer:
    """The store of persistent messages, tmp-storage for the others, and what both are made with."""

    disk: Disk
    directory: DirectoryStore
    """Has all parts of the store on disk. Each owner above gets only the parts that it uses."""
    windows: DuplicateWindows
    overflow: Overflow

    def audit(self) -> dict[str, int]:
        """Check host properties and fullness; return what each part of the store holds in RAM. Requires: the lock."""
        index, properties = self.directory.index, self.directory.host_properties
        properties._check()
        self.directory.journal.fullness._check()
        return {
            holder_names.INDEX: index.held_bytes,
            holder_names.ATTEMPTS: index.delivery_count_table.held_bytes,
            holder_names.DESTINATIONS: index.lanes_charge + self.directory.subscriptions.charge_bytes,
            holder_names.DUPLICATES: self.windows.held_bytes,
            holder_names.PROPERTIES: properties.held_bytes,
        }


def open_store_layer(foundation: FoundationLayer, environment: Environment) -> tuple[StoreLayer, RecoveryReport]:
    """Open the store, ingest the import sets that wait for it, and make tmp-storage.

    Raises what `open_and_ingest` raises.
    """
    disk = ThriftyDisk(environment.disk)
    budget, settings = foundation.budget, foundation.settings
    windows = DuplicateWindows(
        settings,
        foundation.policies,
        budget.holder(holder_names.DUPLICATES),
        foundation.shares,
        foundation.upcalls.make_room,
    )
    of_store = _environment_of_store(foundation, environment, disk, windows)
    read_buffers = budget.holder(holder_names.READ_BUFFERS, guaranteed_bytes=READ_BUFFER_BYTES)
    overflow = _make_overflow(foundation, disk)
    disk.add_giver(overflow.storage.give_up_readers)
    trace = budget.holders.get(holder_names.TRACE)  # charged already, and not part of any share
    traced_bytes = trace.held_bytes if trace is not None else 0
    assert budget.free_bytes + traced_bytes == foundation.shares.available_bytes
    directory, recovery = open_and_ingest(
        of_store,
        _options_of_store(settings, foundation.shares, environment.relocation_target),
        read_buffers,
        message_bytes_max=min(settings.max_message_size_bytes, settings.memory_limit_bytes),
    )
    disk.add_giver(directory.give_up_readers)
    return StoreLayer(disk=disk, directory=directory, windows=windows, overflow=overflow), recovery


def _options_of_store(settings: Settings, shares: Shares, relocation_target: RelocationTarget) -> StoreOptions:
    return StoreOptions(
        index_cache_bytes=shares.index_cache_bytes,
        max_file_bytes=settings.max_file_length_bytes,
        max_checkpoint_adds=settings.max_checkpoint_adds,
        verifies_all=settings.verify_on_open,
        store_limit=settings.store_limit_share or settings.store_limit_bytes,
        accepts_loss=settings.on_missing_data_log == "report",
        relocation_target=relocation_target,
    )


def _environment_of_store(
    foundation: FoundationLayer, environment: Environment, disk: Disk, windows: DuplicateWindows
) -> StoreEnvironment:
    settings, shares, budget = foundation.settings, foundation.shares, foundation.budget

    def make_metadata_store(store_id: bytes) -> MetadataStore:
        return environment.metadata(store_id, shares.metadata_bytes)

    properties = PropertyTable(
        budget.holder(holder_names.PROPERTIES),
        limit_bytes_of(settings.max_file_length_bytes),
        foundation.upcalls.make_room,
    )
    return StoreEnvironment(
        disk=disk,
        metadata=make_metadata_store,
        clock=foundation.clock,
        state_lock=foundation.monitor.lock,
        accounts=StoreAccounts(
            index=budget.holders[holder_names.INDEX],
            relocation=budget.holder(holder_names.RELOCATION, guaranteed_bytes=RELOCATION_BYTES),
            delivery_counts=budget.holder(holder_names.ATTEMPTS, guaranteed_bytes=ATTEMPTS_BYTES),
            destinations=foundation.destination_memory,
        ),
        archive=Archive(disk, environment.archive_disk) if settings.archive_data_logs else None,
        duplicates=windows.persistent,
        host_properties=properties,
        on_progress=environment.on_progress,
        on_space_freed=foundation.journal_line.on_space_freed,
    )


def _make_overflow(foundation: FoundationLayer, disk: Disk) -> Overflow:
    settings, clock = foundation.settings, foundation.clock
    return Overflow(
        disk,
        foundation.budget,
        limit_bytes=temp_limit_bytes(settings, disk),
        max_file_bytes=settings.max_file_length_bytes,
        random_salt=lambda: int.from_bytes(clock.random_bytes(4), "little"),
        paid_buffer_bytes=WRITE_BUFFER_BYTES - DIRECTORY_BYTES_MAX,
        make_room=foundation.upcalls.make_room,
        on_space_freed=foundation.tmp_line.on_space_freed,
    )
