"""MetadataStore: packed blocks of message places. It is a cache of the journal, and can be rebuilt at any time.

A checkpoint is one transaction: it puts and deletes blocks, and replaces the root and the position in the journal that
all this stands for. After a kill the newest committed checkpoint is there. After a power cut it is that one, an earlier
one, or none. Everything that is read is verified by checksums. Any doubt raises MetadataDamaged; the caller then clears
the store and rebuilds it from the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from ..index.fingerprints import Row

BlockRuns = dict[int, list[tuple[int, int]]]
"""Lane -> runs of consecutive block numbers, each (first, last), ascending."""


class MetadataDamaged(Exception):
    """The stored content can't be trusted. Clear the store and rebuild it from the journal."""


class MetadataFull(MetadataDamaged):
    """A checkpoint found no room, or could not be written. The previous checkpoint is valid: postpone the new one."""

    lacks_descriptors = False
    """Whether the process had no file descriptor left, so that the files could not be made or opened."""


class MetadataUnopened(MetadataFull):
    """A checkpoint needed a file descriptor, and the process has none left."""

    lacks_descriptors = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The last committed checkpoint. The blocks themselves stay on disk; `read_block` fetches them."""

    position: int
    epoch: int
    root: bytes
    blocks: BlockRuns
    earliest: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By lane with times: when the first message is due, and when the first one expires; 0: never."""


class MetadataStore(Protocol):
    """Blocks by (lane, block) and one root value, replaced together. Any thread may call any method."""

    @property
    def is_persistent(self) -> bool:
        """Whether committed content outlives the process."""

    @property
    def is_filling(self) -> bool:
        """Whether no further blocks should come until some are deleted."""

    def load(self) -> Snapshot | None:
        """Verify the newest checkpoint and describe it. None: there is none. MetadataDamaged: clear and rebuild.

        OSError: no file descriptor is left to read it, and nothing has changed.
        """

    def commit(
        self,
        position: int,
        epoch: int,
        root: bytes,
        puts: Sequence[tuple[int, int, bytes]],
        deletes: Sequence[tuple[int, int]] = (),
        fingerprints: Sequence[Row] = (),
    ) -> None:
        """Replace the checkpoint, all or nothing. A put wins over a delete; an absent block may be deleted.

        Fingerprints are added to earlier ones, and are deleted with their blocks.

        Requires: the journal is synced up to `position`. MetadataFull: try again later, with later changes too. Until
        then `load` returns the old checkpoint, or refuses.
        """

    def read_block(self, lane_number: int, block: int) -> bytes:
        """Return a block as it was put, verified; during a commit, as before or after it.

        MetadataDamaged: absent or wrong.
        """

    def timed(
        self, kind: int, lane_number: int, behind: tuple[int, int], until_ms: int, most: int
    ) -> list[tuple[int, int]]:
        """Return (time, block) of blocks of a lane, ordered by the time DUE or EXPIRY of their first message.

        behind: (time, block) behind which the answer begins. until_ms: the latest time. most: the longest answer.
        MetadataDamaged: the content can't be read.
        """

    def fingerprints(self, lane_number: int, first: int, last: int, names: Set[str]) -> list[tuple[int, str, bytes]]:
        """Return (block, name, bytes) of the stored fingerprints for these headers in these blocks.

        A fingerprint that does not match its checksum is left out. MetadataDamaged: the content can't be read.
        """

    def resize_cache(self, cache_bytes: int) -> int:
        """Keep at most `cache_bytes` in RAM, or as few more as possible. Return how many may be kept. A commit delays
        it.
        """

    def clear(self) -> None:
        """Begin again without content, whatever the files hold."""

    def close(self) -> None:
        """Close the files. This adds no durability: committed content is durable already."""


Checkpoint = tuple[int, int, bytes, Sequence[tuple[int, int, bytes]], Sequence[tuple[int, int]], Sequence[Row]]
"""The arguments of `MetadataStore.commit`."""


def commit_lending(
    metadata: MetadataStore, lend: Callable[[], bool], give_up_readers: Callable[[], int], checkpoint: Checkpoint
) -> None:
    """Commit. If the disk is full, give it space by `lend` and try again; without a descriptor, close readers and try
    again.

    MetadataFull: there was no space to lend or no reader to close, or it was not enough.
    """
    try:
        metadata.commit(*checkpoint)
    except MetadataFull as full:
        if not (give_up_readers() if full.lacks_descriptors else lend()):
            raise
        metadata.commit(*checkpoint)
