"""The metadata store: packed blocks of message places, a disposable cache of the journal.

A checkpoint is one transaction: blocks put and deleted, the root value, and the journal position that they represent.
After a kill the newest committed checkpoint exists; after a power cut an earlier committed one may, or none. Everything
that is read was verified against checksums. The least doubt raises MetadataDamaged, and the caller clears the store and
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
    """The stored rows can't be trusted. Clear the store and rebuild it from the journal."""


class MetadataFull(MetadataDamaged):
    """A checkpoint found no room, or could not be written. Earlier checkpoints stand: postpone this one."""

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
    """Lane -> when its first message is due, and when its first one expires; 0: never. Only lanes with times."""


class MetadataStore(Protocol):
    """Blocks by (lane, block) and one root value, replaced together. Any thread may call any method."""

    @property
    def is_persistent(self) -> bool:
        """Whether commits outlive the process."""

    @property
    def is_filling(self) -> bool:
        """Whether no more blocks should come until some are deleted."""

    def load(self) -> Snapshot | None:
        """Verify the newest checkpoint and describe it.

        None if nothing was committed. On MetadataDamaged, clear and rebuild.

        Raises OSError if no file descriptor is left to read it; nothing was changed.
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
        """Replace the checkpoint, all or nothing. A put wins over a delete; deleting a missing block is fine.

        Fingerprints are added to the existing ones, and removed with their blocks.

        The journal must be synced up to `position`. On MetadataFull try again later, with the newer changes too; until
        then `load` gives the old checkpoint or refuses.
        """

    def read_block(self, lane_number: int, block: int) -> bytes:
        """Return the block as it was put, verified.

        During a commit it is the old or the new one. Raises MetadataDamaged if it is missing or wrong.
        """

    def timed(
        self, kind: int, lane_number: int, behind: tuple[int, int], until_ms: int, most: int
    ) -> list[tuple[int, int]]:
        """Return (time, block) of blocks of a lane by when their first message is DUE, or has its EXPIRY, in order.

        Returns at most `most` of them, behind a (time, block) and up to a time. Raises MetadataDamaged if the rows
        can't be read.
        """

    def fingerprints(self, lane_number: int, first: int, last: int, names: Set[str]) -> list[tuple[int, str, bytes]]:
        """Return (block, name, bytes) of the stored fingerprints of these headers in these blocks.

        One that does not match its checksum is left out. Raises MetadataDamaged if the rows can't be read.
        """

    def resize_cache(self, cache_bytes: int) -> int:
        """Keep at most that many bytes in RAM, or as few above it as possible; return how many. A commit delays it."""

    def clear(self) -> None:
        """Start again empty, whatever the files contain."""

    def close(self) -> None:
        """Close the files. It adds no durability: only commits are kept."""


Checkpoint = tuple[
    int, int, bytes, Sequence[tuple[int, int, bytes]], Sequence[tuple[int, int]], Sequence[int], Sequence[Row]
]
"""The arguments of `MetadataStore.commit`."""


def commit_lending(
    metadata: MetadataStore, lend: Callable[[], bool], give_up_readers: Callable[[], int], checkpoint: Checkpoint
) -> None:
    """Commit. On a full disk, use the space that `lend` gives back. If descriptors are short, close readers.

    Raises MetadataFull if there was no space, or too little.
    """
    try:
        metadata.commit(*checkpoint)
    except MetadataFull as full:
        if not (give_up_readers() if full.lacks_descriptors else lend()):
            raise
        metadata.commit(*checkpoint)
