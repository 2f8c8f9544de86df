"""Pager: handle messages that must leave RAM.

To page out a message is to let it leave RAM, so that it can be read again. To spill it is to write it to tmp-storage.

Every lane has a pager. A message in the journal can be read again, so Pager itself does nothing, and one object serves
all lanes of persistent messages. A lane of non-persistent messages has a TmpPager (non_persistent_lane_state.py), which
spills them.
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
        """Page out messages that must be on disk at once, because other lists will read them there."""

    def page_out_body(self, message: StoredMessage) -> bool:
        """Page out the body of a message that is handed out, if it can be read again; return whether it left RAM.

        The caller releases the charge.
        """
        return True

    def cut_load(self, load: Load[Any]) -> Sequence[int]:
        """Return the chosen messages that only a delivery has, so that a load can't read them. They become lazy.

        End the load before a message whose only copy another load has. Requires: the load has taken what the caches
        have, and has reserved nothing for the rest.
        """
        return ()


READ_AGAIN: Final = Pager()
"""The pager of all lanes whose messages are in the journal."""
