"""Caller: on whose behalf queues and consumers call the engine: a thread, which may wait, or an event loop."""

from __future__ import annotations

from typing import ClassVar


class Confirmer:
    """Threads are all one, the Engine itself; each event loop is a LoopConfirmer."""

    may_wait: ClassVar[bool] = True
    """For room, and for the disk."""

    def after_write(self, position: int) -> None:
        """See that the call is confirmed, which wrote up to this position in the journal. REQUIRES: no lock."""
        raise NotImplementedError
