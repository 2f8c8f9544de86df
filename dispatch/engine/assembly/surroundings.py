"""Surroundings: what a store is given by the process and the machine around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....cache.process.guard import MemoryGuard
from ....cache.process.shortage import MemoryFigures, read_memory_figures
from ....store.disk.disk import Disk, File
from ....store.environment.clock import Clock
from ....store.environment.progress import OnProgress, tell_nobody
from ....store.metadata.store import MetadataStore
from ..status import StatusOutput


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything outside the store that it may touch. Whoever opens the store chooses it: the system, or a test."""

    disk: Disk
    """Where the files are. Its directory lock is held."""
    metadata: Callable[[bytes, int], MetadataStore]
    """Makes the metadata store, given the id of the store and the bytes of its cache."""
    clock: Clock
    archive_disk: Disk | None = None
    """Where the archive is, if not in `disk`."""
    trace: File | None = None
    """An empty file to record in."""
    guard: MemoryGuard | None = None
    """Watches the memory of the process."""
    memory_figures: Callable[[], MemoryFigures | None] = read_memory_figures
    """Returns the system's memory figures, for memory_limit="auto"."""
    status: StatusOutput | None = None
    """Where the status is written; None: nowhere."""
    on_progress: OnProgress = tell_nobody
    """Told how far opening is; see DirectoryStore."""
