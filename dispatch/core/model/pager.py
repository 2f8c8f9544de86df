"""Pager: handle messages that must leave RAM.

To page out is to let a message leave RAM that can be had again; to spill is to write it to tmp-storage.

Every lane has a pager. A message in the journal can be read again, so the class here keeps nothing; one object serves
all such lanes. A lane of non-persistent messages has a TmpPager (non_persistent_lane_state.py), which writes them to
tmp-storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ....store.stored_message import StoredMessage
from .load import Load


class Pager:
    """Lets messages leave RAM that can be read again. The state lock guards it."""

    __slots__ = ()

    def page_out(self, messages: Sequence[StoredMessage]) -> None:
        """Let messages leave RAM for which no list and no cache has room. Requires: their charge is released."""

    def page_out_at_once(self, messages: Sequence[StoredMessage]) -> None:
        """Let messages leave RAM as page_out does, for memory that is needed at once."""

    def spill(self, messages: Sequence[StoredMessage]) -> None:
        """Page out messages that others must find on disk at once, so one that is not there is spilled now."""

    def page_out_body(self, message: StoredMessage) -> bool:
        """Page out the body of a message in flight, if it can be read again then; return whether it left RAM.

        The charge is not released yet.
        """
        return True

    def cut_load(self, load: Load[Any]) -> Sequence[int]:
        """Return the chosen messages that a load can't read, and end the load before messages that nobody can have now.

        Requires: the load has taken what the caches have, and has reserved nothing for the rest. Returned messages
        become lazy.
        """
        return ()


READ_AGAIN: Final = Pager()
"""The pager of all lanes whose messages are in the journal."""
