"""CheckpointNeed: whether enough has changed since the last checkpoint for another one.

Two things need it: messages that were added, because a replay would read them all, and blocks that are dirty, because
they can't leave RAM. Both counts are in RAM alone, because an open begins with a checkpoint.

A checkpoint that is postponed, for want of space or descriptors, counts as one here: the next is due only after as many
messages again. Otherwise each call would try again in vain.
"""

from __future__ import annotations

from ..numbering import UNLIMITED


class CheckpointNeed:
    """Counts what was added, and knows whether the index fills. The state lock guards it."""

    __slots__ = ("adds", "due_adds", "is_index_filling", "_max_adds")

    def __init__(self, max_adds: int = UNLIMITED) -> None:
        """max_adds: most messages that are added between two checkpoints."""
        self._max_adds = max_adds
        # Messages that were added since the store was opened.
        self.adds = 0
        # The value of `adds` at which the next checkpoint is due.
        self.due_adds = max_adds
        # Whether a checkpoint soon would keep the block cache from being crowded. The block cache sets it.
        self.is_index_filling = False

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint should come, whatever the checkpoint interval says."""
        return self.adds >= self.due_adds or self.is_index_filling

    @property
    def is_overdue(self) -> bool:
        """Whether as many messages again were added since a checkpoint was due."""
        return self.adds >= self.due_adds + self._max_adds

    def checkpointed(self, adds: int) -> None:
        """Begin to count up to the next checkpoint, also if the last one was postponed.

        adds: how many there were when it began.
        """
        self.due_adds = max(self.due_adds, adds + self._max_adds)
