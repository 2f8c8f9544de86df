"""CheckpointNeed: whether enough has changed since the last checkpoint for another one.

Two things ask for a checkpoint: added messages, because a replay would read them all, and dirty blocks, because they
can't leave RAM. Both are only in RAM, because an open ends with a checkpoint.

After a checkpoint that was postponed, for want of space or descriptors, the next one is due only after as many messages
again. Otherwise each call would try again in vain.
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
        """Set when the next checkpoint is due, because one has ended or was postponed.

        adds: the value of `adds` when that one began.
        """
        self.due_adds = max(self.due_adds, adds + self._max_adds)
