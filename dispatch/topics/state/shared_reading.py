"""SharedReading: how much one subscription holds in its own list, and what it leaves to the cache of its topic.

Each list has its own copy of a message, but the shared cache has one copy for all lists. So a list stays short while
lists of other subscriptions are near, and one read of a record serves all that will need its messages soon. All of this
is in RAM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ....cache.accounting.charge import OVERHEAD_BYTES, charge_of_size
from ....cache.messages.message_memory import MessageMemory
from ....cache.messages.shared_cache import SharedCache
from ....store.index.topic_lane import SubscriptionLane
from ....store.numbering import BEHIND_ALL, UNLIMITED
from ....store.stored_message import StoredMessage
from ...core.areas.list_registry import ListRegistry
from ...core.lists.load import Load
from ...core.lists.load_rule import LoadRule
from ...core.model.destination import TargetList

SHARED_LIST_BYTES: Final = (1024, 128 * 1024)
"""Least and most bytes that a list holds while other subscriptions of the topic are near."""
SHARED_LISTS_SHARE: Final = 1 / 4
"""Part of the memory for waiting messages that all lists of a topic may hold together."""
SHARED_LOAD_SHARE: Final = 1 / 8
"""Part of the memory for waiting messages that one load may bring if other lists follow close behind."""
STRAY_LOAD_BYTES: Final = 64 * 1024
"""Least bytes that a load brings for a list that no other list follows, if the shared cache has nothing for it."""


class SharedReading(LoadRule):
    """The LoadRule of one lane of a subscription: how it reads beside those of others. The state lock guards it.

    Of the other subscriptions it knows only their number and their *fronts*: the sequences from which their lists will
    be loaded.
    """

    __slots__ = (
        "cache",
        "_is_followed",
        "_has_neighbours",
        "_memory",
        "_pending_lane",
        "_list_registry",
        "_fronts_of_others",
        "_online_count",
        "_has_left",
    )

    def __init__(
        self,
        memory: MessageMemory,
        pending_lane: SubscriptionLane,
        list_registry: ListRegistry,
        fronts_of_others: Callable[[], list[int]],
        online_count: Callable[[], int],
    ) -> None:
        """Make it for one lane of a subscription.

        list_registry: shortens lists that hold more than they should.
        fronts_of_others: returns the fronts of the other subscriptions that are online. O(online subscriptions).
        online_count: returns the number of all subscriptions that are online.
        """
        self.cache = SharedCache(memory.pending_cache, pending_lane.topic.number, self._first_of_others)
        self._memory = memory
        self._pending_lane = pending_lane
        self._list_registry = list_registry
        self._fronts_of_others = fronts_of_others
        self._online_count = online_count
        # Whether other subscriptions were close at the last load, behind this one or before it.
        self._has_neighbours = online_count() > 1
        # Whether other subscriptions were close behind at the last load. Then a read for this one serves them too.
        self._is_followed = self._has_neighbours
        # Whether its subscription has ended.
        self._has_left = False

    def leave(self) -> None:
        """Forget the other subscriptions, because this one has ended and the references would keep it in RAM.

        A load that ends later leaves the shared cache to the others, as it is.
        """
        self._has_left = True
        self.cache.leave()
        self._fronts_of_others, self._online_count = _no_fronts, _one

    def note_neighbours(self, lists: Iterable[TargetList]) -> None:
        """Move messages from the lists to the shared cache, because another subscription came online. O(messages)."""
        self._is_followed = self._has_neighbours = True
        for target in lists:
            self._list_registry.shorten(target)

    def peek(self, sequence: int) -> StoredMessage | None:
        """Return a message from the shared cache. None: it is not there."""
        return self.cache.peek(self._pending_lane.topic.number, sequence)

    def _first_of_others(self) -> int:
        """Return the lowest front of the other subscriptions: they look for no message before it in RAM."""
        return min(self._fronts_of_others(), default=BEHIND_ALL)

    # ------------------------------------------------------------------ how much a list and a load may be

    @property
    def list_bytes_max(self) -> int:
        """Most bytes that a list should hold.

        Messages for several subscriptions belong in the cache, which has one copy for all.
        """
        if not self._has_neighbours:
            return UNLIMITED
        least, most = SHARED_LIST_BYTES
        return max(least, min(most, self._list_share_bytes()))

    def _list_share_bytes(self) -> int:
        """Return one list's equal share of the bytes that all lists of the topic may hold together."""
        return int(self._memory.waiting_bytes_max * SHARED_LISTS_SHARE) // self._online_count()

    @property
    def reads_for_others(self) -> bool:
        """Whether another subscription was close behind this one at the last load."""
        return self._is_followed

    def load_room(self, list_bytes: int, first: int) -> int:
        """Return how many bytes to load. If other subscriptions keep the list short, that is more than it has room for.

        So a record of many messages is read once, and the cache keeps the rest for this list and lists behind it. The
        size is bounded, because a large load would push out messages that other lists need next.
        """
        if not self._has_neighbours or self.peek(first) is not None:
            return list_bytes
        if self._is_followed:
            return max(list_bytes, int(self._memory.waiting_bytes_max * SHARED_LOAD_SHARE))
        return max(list_bytes, STRAY_LOAD_BYTES)

    def waits_for_takes(self, sequence: int, room_bytes: int) -> bool:
        """Return whether the next message is too large to be put into this list ahead of a take.

        If the shared cache has the message, the list needs no copy before the take. A message on disk is read ahead
        only if each list of the topic may hold a message so large. Otherwise copies that nobody needs yet would push
        out messages that all lists want next.
        """
        if not self._has_neighbours or (run := self._pending_lane.ready_run(sequence, 1)) is None:
            return False
        if self.peek(run[0]) is None:
            room_bytes = max(room_bytes, self._list_share_bytes())
        return charge_of_size(self._pending_lane.lengths(*run)[0]) > room_bytes

    # ------------------------------------------------------------------ after a load

    def on_load_installed(self, load: Load[Any]) -> None:
        """Put messages that were read for this subscription into the cache for subscriptions that need them soon."""
        if self._has_left:
            return
        fronts = self._fronts_of_others()
        least = self._note_fronts(load, fronts)
        if self._has_neighbours:  # before `_keep`, because messages that leave the list make room in the cache
            self._list_registry.shorten(load.target)
        if load.regions and least < UNLIMITED:
            self._keep(load, least)
        # Asked anew, because `shorten` may have moved the front of the list back.
        self.cache.discard_before(min([load.target.first_to_load, *fronts]))

    def _note_fronts(self, load: Load[Any], fronts: list[int]) -> int:
        """Note which lists are near after a load. Return the first sequence that they need soon; UNLIMITED: none.

        fronts: those of the other subscriptions.
        """
        messages = self._pending_lane.topic
        mean_bytes = OVERHEAD_BYTES + messages.pending_bytes / max(messages.pending_messages, 1)
        # Two lists are near if half the cache holds the messages between their fronts. Messages for a list farther off
        # would leave the cache before that list needs them.
        reach = int(self.cache.share_bytes / 2 / mean_bytes)
        at = load.target.first_to_load
        self._is_followed = any(at - reach <= front <= at for front in fronts)
        self._has_neighbours = any(abs(at - front) <= reach for front in fronts)
        self.cache.follow_readers([load.first, *fronts])
        return min((front for front in fronts if load.first - reach <= front <= load.last), default=UNLIMITED)

    def _keep(self, load: Load[Any], least: int) -> None:
        """Keep the messages of a load from a sequence on in the shared cache, as far as it has room."""
        lane_number = self._pending_lane.topic.number
        for message in load.messages or [load.held[sequence] for sequence in sorted(load.held)]:
            if message[0] >= least and message[2] is not None and not self.cache.put(lane_number, message):
                break


def _no_fronts() -> list[int]:
    return []


def _one() -> int:
    return 1
