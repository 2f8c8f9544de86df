"""Environment: what the process and the machine give to a store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ....cache.process.memory_guard import MemoryGuard
from ....cache.process.shortage import MemoryFigures, read_memory_figures
from ....store.disk.disk import Disk, File
from ....store.environment.clock import Clock
from ....store.environment.progress import OnProgress, tell_nobody
from ....store.maintenance.relocation import RelocationTarget
from ....store.metadata.metadata_store import MetadataStore
from ...core.memory.memory_rule import MemoryRule
from ..status import StatusOutput


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything outside the store that the store may touch. A test passes simulated parts in place of the system's."""

    disk: Disk
    """The disk with the files of the store. The lock of its directory is held."""
    metadata: Callable[[bytes, int], MetadataStore]
    """Makes the metadata store, given the id of the store and the bytes of its cache."""
    clock: Clock
    archive_disk: Disk | None = None
    """The disk with the archive; None: the archive is in `disk`."""
    trace: File | None = None
    """An empty file in which traffic is recorded; None: no traffic is recorded."""
    guard: MemoryGuard | None = None
    """Watches the memory of the process; None: nobody does."""
    memory_figures: Callable[[], MemoryFigures | None] = read_memory_figures
    """Returns the system's memory figures, for memory_limit="auto"."""
    status: StatusOutput | None = None
    """Where the status is written; None: nowhere."""
    on_progress: OnProgress = tell_nobody
    """Called while the store opens, with how far the replay of the journal is."""
    memory_rule: MemoryRule = field(default_factory=MemoryRule)
    """Decides how lists and caches share memory."""
    relocation_target: RelocationTarget = RelocationTarget()
    """How large the journal may become before relocation begins."""
