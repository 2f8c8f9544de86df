"""Pager: what becomes of messages that RAM has no place for. Nothing here is stored.

Every lane has one. What is in the journal can be read again, so nothing is to
be kept: that is the class here, one object for all such lanes. A lane of
non-persistent messages has a TmpPager (non_persistent.py), which keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ....store.stored_message import StoredMessage
from .load import Load


class Pager:
    """Lets messages of a lane leave RAM that can be read again. The state lock guards it."""

    __slots__ = ()

    def page_out(self, messages: Sequence[StoredMessage]) -> None:
        """Let messages leave RAM, for which no list and no cache has a place. Requires: their charge is released."""

    def page_out_at_once(self, messages: Sequence[StoredMessage]) -> None:
        """Let messages leave RAM as page_out does, for memory that is wanted at once."""

    def write_out(self, messages: Sequence[StoredMessage]) -> None:
        """Let messages leave RAM as page_out does, where others must find them on disk at once."""

    def unload(self, message: StoredMessage) -> bool:
        """Return whether the body of a message in flight may leave RAM now, because it can be read again.

        Its charge is not released yet.
        """
        return True

    def cut_load(self, load: Load[Any]) -> Sequence[int]:
        """Return what a load has chosen and can't read, and end the load before what nobody can have now.

        Requires: the load has taken what the caches have, and has reserved nothing for the rest. What is returned
        becomes lazy.
        """
        return ()


READ_AGAIN: Final = Pager()
"""That of all lanes whose messages are in the journal."""
