"""The metadata store: packed blocks of message places, a disposable cache of the journal.

A checkpoint is one transaction: blocks put and deleted, the root value, and the journal position that they stand for.
After a kill the newest committed checkpoint is there, after a power cut one that was committed, or nothing. Whatever is
read was verified against checksums; the least doubt raises MetadataDamaged, and the caller clears the store and
rebuilds it from the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from ..index.fingerprints import Row

BlockRuns = dict[int, list[tuple[int, int]]]
"""Lane -> runs of consecutive block numbers, each (first, last), ascending."""


class MetadataDamaged(Exception):
    """What is stored can't be trusted. Clear the store and rebuild it from the journal."""


class MetadataFull(MetadataDamaged):
    """A checkpoint found no room, or could not be written. What was committed before it stands: postpone it."""

    lacks_descriptors = False
    """Whether the process had no file descriptor left, so that the files could not be made or opened."""


class MetadataUnopened(MetadataFull):
    """A checkpoint needed a file descriptor, and the process has none left."""

    lacks_descriptors = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The checkpoint that was committed last. The blocks themselves stay on disk; `read_block` fetches them."""

    position: int
    epoch: int
    root: bytes
    blocks: BlockRuns
    earliest: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Lanes with times -> when the first message is due, and when the first one expires; 0: none."""


class MetadataStore(Protocol):
    """Blocks by (lane, block) and one root value, replaced together. Everything may be called from any thread."""

    @property
    def is_persistent(self) -> bool:
        """Whether what is committed outlives the process."""

    @property
    def is_filling(self) -> bool:
        """Whether there should be no further blocks until some are deleted."""

    def load(self) -> Snapshot | None:
        """Verify the newest checkpoint and describe it; None: nothing committed. MetadataDamaged: clear, rebuild.

        OSError: no file descriptor is left to look at it, and nothing was changed.
        """

    def commit(
        self,
        position: int,
        epoch: int,
        root: bytes,
        puts: Sequence[tuple[int, int, bytes]],
        deletes: Sequence[tuple[int, int]] = (),
        delete_lanes: Sequence[int] = (),
        fingerprints: Sequence[Row] = (),
    ) -> None:
        """Replace the checkpoint, all or nothing. A put wins over a delete; deleting what is absent is fine.

        Fingerprints join those of before, and go with their blocks.

        `position` must be one that the journal has synced. MetadataFull: it is to be tried again with what changed
        since; until then `load` gives the old checkpoint or refuses.
        """

    def read_block(self, lane_number: int, block: int) -> bytes:
        """Return the block as put, verified; beside a commit, as before or after it. MetadataDamaged: absent or
        wrong.
        """

    def timed(
        self, kind: int, lane_number: int, behind: tuple[int, int], until_ms: int, most: int
    ) -> list[tuple[int, int]]:
        """Return (time, block) of blocks of a lane by when their first message is DUE, or its EXPIRY, in order.

        Those behind a (time, block), up to a time, at most so many. MetadataDamaged: what is stored can't be read.
        """

    def fingerprints(self, lane_number: int, first: int, last: int, names: Set[str]) -> list[tuple[int, str, bytes]]:
        """Return (block, name, bytes) of the fingerprints that are stored of these headers in these blocks.

        One that does not match its checksum is as one that is not there. MetadataDamaged: what is stored can't be read.
        """

    def resize_cache(self, cache_bytes: int) -> int:
        """Keep at most so many bytes in RAM, or as few above it as can be; returns how many. A commit delays it."""

    def clear(self) -> None:
        """Start again empty, whatever the files hold."""

    def close(self) -> None:
        """Release the files. Adds no durability: what was committed is what is there."""


Checkpoint = tuple[
    int, int, bytes, Sequence[tuple[int, int, bytes]], Sequence[tuple[int, int]], Sequence[int], Sequence[Row]
]
"""The arguments of `MetadataStore.commit`."""


def commit_lending(
    metadata: MetadataStore, lend: Callable[[], bool], give_up_readers: Callable[[], int], checkpoint: Checkpoint
) -> None:
    """Commit, on a full disk with what lend gave back to it, and where descriptors are short with those of readers.

    MetadataFull: there was nothing, or it was not enough.
    """
    try:
        metadata.commit(*checkpoint)
    except MetadataFull as full:
        if not (give_up_readers() if full.lacks_descriptors else lend()):
            raise
        metadata.commit(*checkpoint)
