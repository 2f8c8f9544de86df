"""Reclaim: which lists and caches give memory back when it is wanted, and in which order.

memory_rule.py makes the decisions that could be made in another way, and watermarks.py says how much each list should
hold. A persistent message that leaves RAM is still in the journal. A non-persistent one is written to tmp-storage,
which a crash loses as it loses RAM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from ....cache.accounting import holder_names
from ....cache.accounting.charge import charge_of
from ....cache.messages.message_cache import WORTH_BYTES, MessageCache
from ....cache.messages.message_memory import MessageMemory
from ....store.numbering import UNLIMITED
from ....store.stored_message import StoredMessage
from ..model.destination import TargetList
from .memory_owners import MemoryOwners


@dataclass(frozen=True, slots=True)
class _Request:
    """A call for memory, as the lists need to know it."""

    missing: Callable[[], int]
    """Returns how many bytes are still to be given back."""
    asker: TargetList | None
    """The list that wants them, which gives nothing. None: no list wants them."""
    messages_min: int
    """Messages that each other list keeps."""
    supply_seconds_min: float
    """Supply that each other list keeps."""


class Reclaim:
    """The order in which lists and caches give memory back.

    The state lock guards it; every method requires it held.
    """

    def __init__(
        self,
        memory: MemoryOwners,
        lists: Iterable[TargetList],
    ) -> None:
        """lists: a live view of all lists."""
        self._budget = memory.budget
        self._overflow = memory.overflow
        self._memory_rule = memory.memory_rule
        self._lists = lists
        self._memories = memory.memories
        # How often the rates of the lists were measured.
        self.measurements = 0
        # The last look at which no list could give: the bytes of all lists, `measurements`, and the supply that each
        # list was to keep. By the memory of the list that asked, because lists of one memory share its reserve.
        self._exhausted: dict[MessageMemory, tuple[int, int, float]] = {}

    @property
    def memories(self) -> list[MessageMemory]:
        """All memories in the order in which they give back: with a share alone, the common one, with a reserve."""
        quotas = self._memories.of_patterns.values()
        return [
            *(memory for memory in quotas if not memory.quota.reserve_bytes),
            self._memories.common,
            *(memory for memory in quotas if memory.quota.reserve_bytes),
        ]

    def make_room(
        self, wanted_bytes: int, asker: TargetList | None, *, messages_min: int = 1, supply_seconds_min: float = 0.0
    ) -> None:
        """Give memory back until `wanted_bytes` are free or nothing more can be given, in this order (see `order`):

        1. the SpillBuffer, whose messages go to tmp-storage if one write frees more than their places take;
        2. the HeadQueueCache, the newest messages first;
        3. the PendingCache, first what came there last: messages far from being consumed, except those that came back
           or that a list gave up;
        4. direct messages from the far end of the list with the most supply, which moves its direct end back;
        5. small rests of the SpillBuffer.

        If the MemoryRule has `lists_give_first`, 4 comes before 2. The list `asker` gives nothing. Each other list
        keeps `messages_min` messages, and `supply_seconds_min` of supply, so that two lists do not take the same memory
        from each other for ever.
        """
        memory, budget = asker.memory if asker is not None else self._memories.common, self._budget

        def missing_in_share() -> int:
            return wanted_bytes - memory.share_free_bytes

        def missing() -> int:
            return wanted_bytes - budget.free_bytes - memory.unused_bytes

        if missing_in_share() > 0:
            self._make_room_in_share(memory, _Request(missing_in_share, asker, messages_min, supply_seconds_min))
        request = _Request(missing, asker, messages_min, supply_seconds_min)
        if missing() > 0:
            self._overflow.spill_until_free(wanted_bytes - memory.unused_bytes)
        if missing() > 0 and self._memory_rule.lists_give_first:
            self._shorten_lists(request)
        if missing() > 0:
            self._empty_caches(memory, missing)
        if missing() > 0:
            self._shorten_lists(request)
        if missing() > 0:
            self._overflow.spill_arriving()

    def _empty_caches(self, memory: MessageMemory, missing: Callable[[], int]) -> None:
        """Let the caches give back until nothing is missing, without touching the reserve of another memory."""
        heads: list[tuple[MessageMemory, MessageCache]] = [(giver, giver.head_queue_cache) for giver in self.memories]
        for giver, cache in (*heads, *((giver, giver.pending_cache) for giver in self.memories)):
            missing_bytes = missing()
            if missing_bytes > 0:
                cache.give_back(min(missing_bytes, UNLIMITED if giver is memory else giver.spare_bytes))

    def empty_heads_until_free(self, wanted_bytes: int) -> None:
        """Let the HeadQueueCaches give back until so many bytes are free, without touching a reserve."""
        budget = self._budget
        for giver in self.memories:
            if budget.free_bytes < wanted_bytes:
                giver.head_queue_cache.give_back(min(wanted_bytes - budget.free_bytes, giver.spare_bytes))

    def give_back_excess(self, memory: MessageMemory) -> None:
        """Let destinations of a pattern give back what they hold above its share, which may have shrunk."""
        self._make_room_in_share(memory, _Request(lambda: -memory.share_free_bytes, None, 0, 0.0))

    def _make_room_in_share(self, memory: MessageMemory, request: _Request) -> None:
        """Let destinations of a pattern give back until its share has room: caches and lists as in `make_room`.

        The SpillBuffer gives nothing, because what it has counts against no share.
        O(lists + messages, each with log lists).
        """
        missing = request.missing

        def shorten() -> None:
            self._shorten([target for target in self._others(request) if target.memory is memory], request)

        if missing() > 0 and self._memory_rule.lists_give_first:
            shorten()
        for cache in (memory.head_queue_cache, memory.pending_cache):
            if missing() > 0:
                cache.give_back(missing())
        if missing() > 0:
            shorten()
        self._ask_counterpart(request)

    def _others(self, request: _Request) -> list[TargetList]:
        """Return the lists that could give messages to the one that asks, without its counterpart. O(lists)."""
        asker, messages_min, seconds_min = request.asker, request.messages_min, request.supply_seconds_min
        counterpart = asker.counterpart if asker is not None else None
        return [
            target
            for target in self._lists
            if target is not asker and target is not counterpart and _can_give(target, messages_min, seconds_min)
        ]

    def _shorten_lists(self, request: _Request) -> None:
        """Take direct messages from the lists with the most supply. O(lists + messages, each with log lists)."""
        asker, seconds_min = request.asker, request.supply_seconds_min
        is_exhausted = asker is not None and self._is_exhausted(asker.memory, seconds_min)
        has_more = not is_exhausted and self._shorten(self._others(request), request)
        self._ask_counterpart(request)
        if asker is None or is_exhausted or has_more or seconds_min <= 0:
            return
        counterpart = asker.counterpart
        if counterpart is None or not _can_give(counterpart, request.messages_min, seconds_min):
            self._exhausted[asker.memory] = self._lists_bytes, self.measurements, seconds_min

    def _is_exhausted(self, memory: MessageMemory, supply_seconds_min: float) -> bool:
        """Return whether no list could give to one of this memory at the last look, and nothing seems to have changed.

        Only the bytes of all lists together are compared. If one list has grown by as much as others have shrunk, the
        next measurement notices it.
        """
        lists_bytes, measurements, seconds = self._exhausted.get(memory, (-1, -1, 0.0))
        return lists_bytes == self._lists_bytes and measurements == self.measurements and supply_seconds_min >= seconds

    @property
    def _lists_bytes(self) -> int:
        return sum(memory.lists_holder.held_bytes for memory in self.memories)

    def _shorten(self, others: Sequence[TargetList], request: _Request) -> bool:
        """Take direct messages from the list with the most supply, again and again, until nothing is missing.

        Return whether any list has more to give. A list whose destinations hold no more than their reserve gives only
        to lists of the same memory.
        """
        missing, asker = request.missing, request.asker
        messages_min, seconds_min = request.messages_min, request.supply_seconds_min
        supply = self._memory_rule.supply
        richest_first = [(-supply(target), number) for number, target in enumerate(others)]
        heapify(richest_first)
        while missing() > 0 and richest_first:
            _, number = heappop(richest_first)
            richest = others[number]
            memory = richest.memory
            is_own = asker is not None and memory is asker.memory
            stop = max(len(richest.direct) // 2, messages_min)
            missing_bytes = missing()
            if asker is None and not richest.lane.is_persistent:  # less would be loaded back at once, again and again
                missing_bytes = max(missing_bytes, WORTH_BYTES)
            evicted: list[StoredMessage] = []
            while missing_bytes > 0 and _can_give(richest, stop, seconds_min) and (is_own or memory.spare_bytes):
                evicted.append(richest.evict_last())
                charge = charge_of(evicted[-1])
                memory.lists_holder.release(charge)
                missing_bytes -= charge
            richest.lane.pager.page_out_at_once(evicted)
            if evicted and _can_give(richest, messages_min, seconds_min):
                heappush(richest_first, (-supply(richest), number))
        return bool(richest_first)

    def _ask_counterpart(self, request: _Request) -> None:
        """Let the counterpart of the list that asks give, if it has one and something is still missing."""
        asker = request.asker
        if asker is not None and asker.counterpart is not None and request.missing() > 0:
            self._share_with_counterpart(asker, asker.counterpart, request)

    def _share_with_counterpart(self, target: TargetList, counterpart: TargetList, request: _Request) -> None:
        """Take direct messages from a counterpart that has more than half of what the two may have.

        The two lists hand out in turns, so a list that took everything from the other would have to wait for it. With
        `messages_min` of 0, the counterpart gives even its last message to a list that has none.
        """
        lists, free_bytes = target.memory.lists_holder, target.memory.free_bytes
        half_bytes = (counterpart.direct_bytes + target.direct_bytes + max(free_bytes, 0)) // 2
        evicted: list[StoredMessage] = []
        while counterpart.direct and request.missing() > 0:
            charge = charge_of(counterpart.direct[-1])
            if counterpart.direct_bytes - charge < half_bytes and (request.messages_min or evicted):
                break
            evicted.append(counterpart.evict_last())
            lists.release(charge)
        counterpart.lane.pager.page_out_at_once(evicted)

    def order(self) -> list[tuple[str, int]]:
        """Return (holder, bytes) of all that could give memory back now, in the order of their turns. O(lists)."""
        kept = sum(charge_of(target.direct[0]) for target in self._lists if target.direct)
        held_by = self._budget.held_by
        could_give = [
            (self._overflow.buffer.holder.name, self._overflow.could_give_bytes),
            (holder_names.HEAD_QUEUE_CACHE, held_by(holder_names.HEAD_QUEUE_CACHE)),
            (holder_names.PENDING_CACHE, held_by(holder_names.PENDING_CACHE)),
        ]
        lists = (holder_names.TARGET_LISTS, sum(target.direct_bytes for target in self._lists) - kept)
        could_give.insert(1 if self._memory_rule.lists_give_first else len(could_give), lists)
        return [(name, size_bytes) for name, size_bytes in could_give if size_bytes > 0]


def _can_give(target: TargetList, messages_min: int, supply_seconds_min: float) -> bool:
    """Return whether a list keeps so many messages and so much supply without its last direct message."""
    direct = target.direct
    if len(direct) <= messages_min:
        return False
    return target.direct_bytes - charge_of(direct[-1]) >= supply_seconds_min * target.bytes_per_second
