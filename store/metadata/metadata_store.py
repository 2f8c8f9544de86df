"""MetadataStore: packed blocks of message places, a cache of the journal that can be rebuilt at any time.

A checkpoint is one transaction: blocks put and deleted, the root value, and the journal position that they stand for.
After a kill the newest committed checkpoint is there; after a power cut one that was committed, or none. Everything
that is read is verified against checksums. The least doubt raises MetadataDamaged, and the caller clears the store and
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
    """The stored content can't be trusted. Clear the store and rebuild it from the journal."""


class MetadataFull(MetadataDamaged):
    """A checkpoint found no room, or could not be written. The previous one is still valid: postpone the new one."""

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
    """Lanes with times -> when the first message is due, and when the first one expires; 0: never."""


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

        `position` must be one that the journal has synced. MetadataFull: try again with what has changed since; until
        then `load` returns the old checkpoint or refuses.
        """

    def read_block(self, lane_number: int, block: int) -> bytes:
        """Return a block as it was put, verified; during a commit, as before or after it.

        MetadataDamaged: absent or wrong.
        """

    def timed(
        self, kind: int, lane_number: int, behind: tuple[int, int], until_ms: int, most: int
    ) -> list[tuple[int, int]]:
        """Return (time, block) of blocks of a lane, ordered by the time DUE or EXPIRY of their first message.

        It returns those behind a (time, block), up to a time, at most so many. MetadataDamaged: the content can't be
        read.
        """

    def fingerprints(self, lane_number: int, first: int, last: int, names: Set[str]) -> list[tuple[int, str, bytes]]:
        """Return (block, name, bytes) of the stored fingerprints for these headers in these blocks.

        One that does not match its checksum is left out. MetadataDamaged: the content can't be read.
        """

    def resize_cache(self, cache_bytes: int) -> int:
        """Keep at most so many bytes in RAM, or as few more as possible; return how many. A commit delays it."""

    def clear(self) -> None:
        """Begin again without content, whatever the files hold."""

    def close(self) -> None:
        """Close the files. This adds no durability: committed content is durable already."""


Checkpoint = tuple[int, int, bytes, Sequence[tuple[int, int, bytes]], Sequence[tuple[int, int]], Sequence[Row]]
"""The arguments of `MetadataStore.commit`."""


def commit_lending(
    metadata: MetadataStore, lend: Callable[[], bool], give_up_readers: Callable[[], int], checkpoint: Checkpoint
) -> None:
    """Commit. On a full disk, lend it space first; without a descriptor, close readers first.

    MetadataFull: there was nothing to lend or close, or it was not enough.
    """
    try:
        metadata.commit(*checkpoint)
    except MetadataFull as full:
        if not (give_up_readers() if full.lacks_descriptors else lend()):
            raise
        metadata.commit(*checkpoint)
