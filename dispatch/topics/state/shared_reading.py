"""SharedReading: how much one subscription holds in its own list, and what it leaves to the cache of its topic.

Each list has its own copy of a message, but the shared cache has one copy for all lists. So a list stays short while
lists of other subscriptions are near, and one read of a record serves all that will need its messages soon. All of this
is in RAM.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ....cache.accounting.charge import OVERHEAD_BYTES
from ....cache.messages.message_memory import MessageMemory
from ....cache.messages.shared_cache import SharedCache
from ....store.numbering import UNLIMITED
from ....store.stored_message import StoredMessage
from ...core.lists.load import Load
from ...core.model.destination import TargetList

SHARED_LIST_BYTES: Final = (1024, 128 * 1024)
"""Least and most bytes that a list holds while other subscriptions of the topic are near."""
SHARED_LISTS_SHARE: Final = 1 / 4
"""Part of the memory for waiting messages that all lists of a topic may hold together."""
SHARED_LOAD_SHARE: Final = 1 / 8
"""Part of the memory for waiting messages that one load may bring if other lists follow close behind."""
STRAY_LOAD_BYTES: Final = 64 * 1024
"""Least bytes that a load brings for a list that no other list follows, if the shared cache has nothing for it."""


class SharedReading:
    """How one lane of a subscription reads beside those of other subscriptions. The state lock guards it.

    Of the other subscriptions it knows only the *fronts*: the sequences from which their lists will be loaded.
    """

    __slots__ = ("cache", "is_followed", "has_neighbours", "_memory", "_lane_number")

    def __init__(
        self, memory: MessageMemory, lane_number: int, wanted_by_others: Callable[[], int], *, has_neighbours: bool
    ) -> None:
        """Make it for one lane of a subscription.

        lane_number: that of the topic's lane. wanted_by_others: as in SharedCache.
        """
        self.cache = SharedCache(memory.pending_cache, lane_number, wanted_by_others)
        # Whether other subscriptions were close behind at the last load. Then a read for this one serves them too.
        self.is_followed = has_neighbours
        # Whether other subscriptions were close at the last load, behind this one or before it.
        self.has_neighbours = has_neighbours
        self._memory = memory
        self._lane_number = lane_number

    def note_neighbours(self) -> None:
        """Note that another subscription has just come, which may be close."""
        self.is_followed = self.has_neighbours = True

    def peek(self, sequence: int) -> StoredMessage | None:
        """Return a message from the shared cache. None: it is not there."""
        return self.cache.peek(self._lane_number, sequence)

    # ------------------------------------------------------------------ how much a list and a load may be

    def list_bytes_max(self, online: int) -> int:
        """Return how many bytes a list should hold at most. online: number of online subscriptions."""
        if not self.has_neighbours:
            return UNLIMITED
        least, most = SHARED_LIST_BYTES
        return max(least, min(most, self._list_share_bytes(online)))

    def _list_share_bytes(self, online: int) -> int:
        """Return one list's equal share of the bytes that all lists of the topic may hold together."""
        return int(self._memory.waiting_bytes_max * SHARED_LISTS_SHARE) // online

    def load_room(self, list_bytes: int, first: int) -> int:
        """Return how many bytes to load. If other subscriptions keep the list short, that is more than it has room for.

        So a record of many messages is read once, and the cache keeps the rest for this list and lists behind it. The
        size is bounded, because a large load would push out messages that other lists need next.
        """
        if not self.has_neighbours or self.peek(first) is not None:
            return list_bytes
        if self.is_followed:
            return max(list_bytes, int(self._memory.waiting_bytes_max * SHARED_LOAD_SHARE))
        return max(list_bytes, STRAY_LOAD_BYTES)

    def has_room_ahead(self, charge_bytes: int, sequence: int, room_bytes: int, online: int) -> bool:
        """Return whether a list with so much room should hold a message ahead of a take.

        If the shared cache has the message, the list needs no copy before the take. A message on disk is read ahead
        only if each list of the topic may hold a message so large. Otherwise copies that nobody needs yet would push
        out messages that all lists want next.
        """
        if self.peek(sequence) is None:
            room_bytes = max(room_bytes, self._list_share_bytes(online))
        return charge_bytes <= room_bytes

    # ------------------------------------------------------------------ after a load

    def note_fronts(self, load: Load[TargetList], fronts: list[int], mean_bytes: float) -> int:
        """Note which lists are near after a load. Return the first sequence that they need soon; UNLIMITED: none.

        fronts: those of the other subscriptions. mean_bytes: what one message takes in RAM on average.
        """
        # Two lists are near if half the cache holds the messages between their fronts. Messages for a list farther off
        # would leave the cache before that list needs them.
        reach = int(self.cache.share_bytes / 2 / mean_bytes)
        at = load.target.first_to_load
        self.is_followed = any(at - reach <= front <= at for front in fronts)
        self.has_neighbours = any(abs(at - front) <= reach for front in fronts)
        self.cache.follow_readers([load.first, *fronts])
        return min((front for front in fronts if load.first - reach <= front <= load.last), default=UNLIMITED)

    def keep(self, load: Load[TargetList], least: int) -> None:
        """Keep the messages of a load from a sequence on in the shared cache, as far as it has room."""
        for message in load.messages or [load.held[sequence] for sequence in sorted(load.held)]:
            if message[0] >= least and message[2] is not None and not self.cache.put(self._lane_number, message):
                break


def mean_charge_bytes(content_bytes: int, messages: int) -> float:
    """Return what one of these messages takes in RAM on average."""
    return OVERHEAD_BYTES + content_bytes / max(messages, 1)
