"""Explains why a consumer gets nothing, and who holds the messages of a queue: the state of one moment, in words.

Each pending message is in one place: in flight, delayed by a nack, not due yet, expired, given up after its last
attempt, decided about by a transaction, skipped because it can't be read, not synced yet, or free. A consumer that
may take gets free messages that match its selector. Whatever keeps it from them is the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from ...cache.accounting import holder_names
from ...cache.accounting.charge import OVERHEAD_BYTES
from ...store.errors import SettingsError
from ...store.format.record import RecordDamaged
from ...store.format.times import DUE, NEVER
from ...store.numbering import BEHIND_ALL, BLOCK_MESSAGES
from ...store.structures.bits import runs_of_ones
from ..consumer.consumer import Consumer
from ..core.memory.memory_statistics import MemoryStatistics
from ..core.model.delivery import AbstractConsumer, Delivery, content_bytes, is_lazy, message_of
from ..core.model.destination import CoreConsumer, CoreDestination, LaneState, TargetList
from ..engine.explained_store import ExplainedStore
from ..queue import Queue
from ..topic import Topic
from ..topics.state.subscription_state import SubscriptionLaneState
from .assignment_causes import (
    EXCLUSIVE,
    GROUP,
    GROUP_DELAYED,
    GROUP_MEMORY,
    PRIORITY,
    assignment_causes,
    exclusive_cause,
    group_delayed_cause,
    group_memory_cause,
    unmatched_by_owners,
    unmatched_by_owners_cause,
    waiting_messages,
)
from .blocked import explain_blocked
from .cause import Cause, Explanation
from .disk import MEMORY, memory_causes
from .prepared import TRANSACTION
from .reachable_messages import ReachableMessages
from .texts import plural, size_text
from .topics import explain_topic

EMPTY: Final = "empty"
CLOSED: Final = "closed"
DRAINING: Final = "draining"
PAUSED: Final = "paused"
PREFETCH: Final = "prefetch"
LOADING: Final = "loading"
READY: Final = "ready"
IN_FLIGHT: Final = "in_flight"
DELAYED: Final = "delayed"
DUE_LATER: Final = "due_later"
EXPIRED: Final = "expired"
DEAD_LETTER: Final = "dead_letter"
SELECTOR: Final = "selector"
UNREADABLE: Final = "unreadable"
SYNC: Final = "sync"
NO_CONSUMER: Final = "no_consumer"


@dataclass(slots=True)
class _Part:
    """Some messages in the same place."""

    messages: int = 0
    bytes: int = 0
    oldest_ms: int | None = None

    def add(self, delivery: Delivery) -> None:
        self.messages += 1
        if is_lazy(delivery):
            self.bytes += delivery.lane.pending_lane.lengths(delivery.sequence, delivery.sequence)[0]
        else:
            self.bytes += content_bytes(delivery)
        sent_ms = message_of(delivery)[3]
        if sent_ms and (self.oldest_ms is None or sent_ms < self.oldest_ms):
            self.oldest_ms = sent_ms


@dataclass(slots=True)
class _Places:
    """The places of the pending messages of a queue or subscription."""

    depth: int
    bytes: int
    in_flight: dict[AbstractConsumer, _Part] = field(default_factory=dict)
    """The messages in flight, by who holds them."""
    delayed: _Part = field(default_factory=_Part)
    delayed_ms: int = NEVER
    """When the first of the delayed messages may go, on the store's clock."""
    dead_letters: _Part = field(default_factory=_Part)
    """The messages that are about to leave for the dead-letter queue."""
    transactions: dict[str, _Part] = field(default_factory=dict)
    """The messages that a transaction decides about, by a text that names the transaction and its state."""
    due_later: _Part = field(default_factory=_Part)
    """The messages that were sent with a delay and are not due."""
    due_ms: int = NEVER
    """When the first of the messages that are due later may go."""
    expired: _Part = field(default_factory=_Part)
    unreadable: int = 0
    unsynced: _Part = field(default_factory=_Part)

    @property
    def free(self) -> int:
        """The number of messages in no other place.

        Unreadable messages count, because a list may still try to read them.
        """
        taken = sum(part.messages for part in (*self.in_flight.values(), *self.transactions.values()))
        timed = self.delayed.messages + self.due_later.messages + self.expired.messages
        return self.depth - taken - timed - self.dead_letters.messages - self.unsynced.messages


def explain_subject(store: ExplainedStore, subject: Queue | Topic | Consumer) -> Explanation:
    """Explain a queue, a topic or a consumer. Requires: the lock is not held."""
    store.monitor.raise_if_closed()
    if subject.monitor is not store.monitor:
        raise SettingsError(f"the {type(subject).__name__.lower()} belongs to another store: ask that one")
    if isinstance(subject, Topic):
        with store.monitor.lock:
            topic = subject.for_report
        return explain_topic(store, topic)
    if isinstance(subject, Queue):
        with store.monitor.lock:
            queue = subject.for_report
        return explain_destination(store, queue)
    return explain_consumer(store, subject)


def explain_named(store: ExplainedStore, name: str) -> Explanation:
    """Explain a queue or a topic by its name, or a durable subscription as "prices/audit".

    A queue comes first where several have the name, then a topic. Requires: the lock is not held. SettingsError: none
    has the name.
    """
    store.monitor.raise_if_closed()
    with store.monitor.lock, store.monitor.all_or_broken:
        topic = store.topics.named_for_report(name)
        destination: CoreDestination | None = store.queues.named_for_report(name)
        for other in store.topics.by_name.values() if destination is None and topic is None else ():
            subscription = name.removeprefix(f"{other.name}/")
            if subscription != name and (seen := other.subscription_for_report(subscription)) is not None:
                destination = seen
    if destination is not None:
        return explain_destination(store, destination)
    if topic is not None:
        return explain_topic(store, topic)
    raise SettingsError(
        f"there is no queue or topic {name!r}, and no durable subscription: write one as 'prices/audit', topic first"
    )


def explain_consumer(store: ExplainedStore, consumer: Consumer) -> Explanation:
    """Explain why a consumer gets nothing, or that it would get something. Requires: the lock is not held."""
    with store.monitor.lock, store.monitor.all_or_broken:
        store.times.due.release_due()
        causes = tuple(_consumer_causes(store, consumer))
        if causes[0].reason not in (CLOSED, DRAINING):
            causes = _with_pause(consumer.destination, causes)
    store.monitor.run_deferred()
    name = consumer.destination.qualified_name
    if causes[0].reason == READY:
        count = causes[0].messages
        return Explanation(f"Nothing keeps the consumer of {name} from {count:,} message{plural(count)}.", causes)
    said = " and ".join(_because(cause) for cause in _foremost(causes))
    return Explanation(f"The consumer of {name} gets nothing because {said}.", causes)


def explain_destination(store: ExplainedStore, destination: CoreDestination) -> Explanation:
    """Explain who holds the messages of a queue or subscription, and what senders wait for. Requires: no lock."""
    with store.monitor.lock, store.monitor.all_or_broken:
        store.times.due.release_due()
        places = _places(store, destination)
        causes = _with_pause(destination, (*_holders(store, places, None), *_free_causes(store, destination, places)))
    store.monitor.run_deferred()
    blocked = explain_blocked(store, destination)
    name = destination.qualified_name
    if not causes and not blocked:
        return Explanation(f"{name} has no messages.", ())
    sentence = f"{name} has {places.depth:,} message{plural(places.depth)} of {size_text(places.bytes)}"
    if not places.depth:
        sentence = f"{name} has no messages"
    said = [*map(_state, causes), *(clause for _, clause in blocked)]
    return Explanation(f"{sentence}: {'; '.join(said)}.", (*causes, *(cause for cause, _ in blocked)))


# ---------------------------------------------------------------------- places of messages. Requires: the lock


def _places(store: ExplainedStore, destination: CoreDestination) -> _Places:
    """Return where the pending messages are.

    O(in flight + parked + acknowledged in transactions + blocks of timed lanes).
    """
    places = _Places(destination.depth, destination.depth_bytes)
    lanes = list(destination.all_lanes())
    for lane in lanes:
        for delivery in lane.deliveries.values():
            places.in_flight.setdefault(delivery.consumer, _Part()).add(delivery)
        _count(places.unsynced, lane, [(lane.published_end, BEHIND_ALL)])
        _count(places.dead_letters, lane, lane.dead_letters)
        places.unreadable += lane.unreadable
        if lane.is_timed:
            _count_timed(store, lane, places)
        _count(places.delayed, lane, store.times.delayed.runs(lane))
        places.delayed_ms = min(places.delayed_ms, store.times.delayed.next_due_ms(lane))
    for transaction in store.transactions.undecided.values():
        part = _Part()
        for lane in lanes:
            _count(part, lane, transaction.acknowledged_in(lane.pending_lane.number))
        if part.messages:
            state = "prepared" if transaction.is_prepared else "open"
            places.transactions[f"{transaction.name} ({state})"] = part
    return places


def _count_timed(store: ExplainedStore, lane: LaneState, places: _Places) -> None:
    """Add messages that are not due yet, and those that have expired and are not in flight. O(blocks)."""
    timed = lane.topic_lane_state if isinstance(lane, SubscriptionLaneState) else lane
    now_ms = store.times.now_ms()
    at = 0
    if timed.pending_lane.earliest[DUE] < NEVER:
        places.due_ms = min(places.due_ms, timed.pending_lane.earliest[DUE])
        end = lane.published_end
        while (found := lane.pending_lane.pending_run(at, BLOCK_MESSAGES)) is not None and found[0] < end:
            _count(places.due_later, lane, runs_of_ones(lane.pending_lane.not_due_bits(*found), found[0]))
            at = found[1] + 1
    for number in timed.backing_store.due_times.expired_blocks(timed.pending_lane, now_ms):
        runs = list(timed.backing_store.due_times.expired(timed.pending_lane, number, now_ms))
        free = store.times.expiry_sweeper.free_messages([lane], runs)
        for first, last in free.copy():  # a run that vanishes would hide the next one
            for low, high in runs_of_ones(lane.pending_lane.not_due_bits(first, last), first):
                free.remove(low, high)
        for first, last in chain(lane.parked, store.times.delayed.runs(lane)):
            free.remove(first, last)
        _count(places.expired, lane, free)


def _count(part: _Part, lane: LaneState, runs: Iterable[tuple[int, int]]) -> None:
    """Add those of these messages that are pending. O(blocks of the runs)."""
    for at, last in runs:
        while (found := lane.pending_lane.pending_run(at, BLOCK_MESSAGES)) is not None and found[0] <= last:
            end = min(found[1], last)
            part.messages += end - found[0] + 1
            part.bytes += sum(lane.pending_lane.lengths(found[0], end))
            at = end + 1


# ---------------------------------------------------------------------- a consumer. Requires: the lock


def _consumer_causes(store: ExplainedStore, consumer: Consumer) -> list[Cause]:
    """Return the causes, at least one, starting with the most important."""
    destination, dispatch_area = consumer.destination, store.dispatch_area
    name = destination.qualified_name
    if consumer.stage.is_closed:
        return [Cause(CLOSED, name, 0, 0, None, "another subscribe")]
    if consumer.stage.is_draining:
        return [Cause(DRAINING, name, 0, 0, None, "another subscribe")]
    places = _places(store, destination)
    if not places.depth:
        return [Cause(EMPTY, name, 0, 0, None, f"a message that is sent to {destination.name!r}")]
    if places.free and destination.exclusive not in (None, consumer):
        return [exclusive_cause(places.free)]
    reachable = ReachableMessages(destination, store.times.now_ms).of(consumer) if places.free else None
    if reachable is None:
        return _elsewhere(store, consumer, places)
    target, is_direct = reachable
    if destination.is_paused:
        return [_paused(destination, places.free)]
    if consumer.credit <= 0:
        return _prefetch_causes(store, consumer, places)
    if consumer.in_flight and dispatch_area.is_short_for(consumer.destination.memory):
        return _in_flight_memory(store)
    if is_direct:
        direct = sum(len(other.direct) for other in consumer.selector_group.in_turn())
        return [Cause(READY, name, direct, target.direct_bytes, None, "the next take")]
    if _is_starved(store):
        return memory_causes(MemoryStatistics.of(store.memory.budget))
    return [_loading(store, name, target)]


def _is_starved(store: ExplainedStore) -> bool:
    """Return whether memory has no room even for the reference of one message, whatever is given back."""
    budget = store.memory.budget
    givers = (holder_names.HEAD_QUEUE_CACHE, holder_names.PENDING_CACHE, holder_names.TARGET_LISTS)
    given = sum(map(budget.held_by, givers))
    possible = budget.free_bytes + store.memory.overflow.could_give_bytes + given
    return max(possible, budget.limit_bytes - budget.committed_bytes) < OVERHEAD_BYTES


def _loading(store: ExplainedStore, name: str, target: TargetList) -> Cause:
    behind = max(target.lane.published_end - target.frontier, 0)
    messages = target.returned.count + target.references.count + behind
    if target.is_loading:
        frees = "the load that is under way"
    elif store.has_background:
        frees = "the next take, or the loader, which comes to it"
    else:
        frees = "the next take, or a step()"
    return Cause(LOADING, name, messages, 0, None, frees)


def _prefetch_causes(store: ExplainedStore, consumer: Consumer, places: _Places) -> list[Cause]:
    own = places.in_flight.get(consumer, _Part())
    causes = []
    if own.messages:
        one = "it" if own.messages == 1 else "one of them"
        frees = f"acknowledging or giving back {one}, or a higher prefetch"
        causes.append(_cause(store, PREFETCH, "this consumer", own, frees))
    if own.messages < consumer.in_flight:
        causes += [
            _cause(store, TRANSACTION, holder, part, f"the outcome of transaction {holder}")
            for holder, part in places.transactions.items()
        ]
    return causes


def _in_flight_memory(store: ExplainedStore) -> list[Cause]:
    """Return who holds the memory of messages that are handed out, starting with whoever holds most."""
    parts: dict[str, _Part] = {}
    for lane in store.target_lists.lanes():
        for delivery in lane.deliveries.values():
            parts.setdefault(lane.destination.qualified_name, _Part()).add(delivery)
    for transaction in store.transactions.undecided.values():
        for delivery in transaction.held:
            parts.setdefault(f"transaction {transaction.name}", _Part()).add(delivery)
    ranked = sorted(parts.items(), key=lambda found: -found[1].bytes)
    frees = "settling what is in flight, or a higher memory_limit"
    return [_cause(store, MEMORY, holder, part, frees) for holder, part in ranked]


def _elsewhere(store: ExplainedStore, consumer: Consumer, places: _Places) -> list[Cause]:
    """Explain who has the messages that it could get, and which it does not want.

    Requires: none is within its reach.
    """
    selector_group, unmatched = consumer.selector_group, places.free
    if selector_group.selector is not None:
        wanted: dict[AbstractConsumer, _Part] = {}
        for delivery in (held for lane in consumer.destination.all_lanes() for held in lane.deliveries.values()):
            if _may_match(consumer, delivery):
                wanted.setdefault(delivery.consumer, _Part()).add(delivery)
            else:
                unmatched += 1
        places.in_flight = wanted
    causes = _holders(store, places, consumer)
    assigned = assignment_causes(consumer, places.free)
    causes += assigned
    unmatched -= sum(cause.messages for cause in assigned)
    unreadable = min(unmatched, places.unreadable) if selector_group.selector is not None else unmatched
    if unreadable:
        causes.append(_unreadable(consumer.destination, unreadable))
    if unmatched > unreadable:
        frees = "a message that it matches, or a consumer with another selector"
        causes.append(Cause(SELECTOR, consumer.destination.qualified_name, unmatched - unreadable, 0, None, frees))
    return causes


def _may_match(consumer: Consumer, delivery: Delivery) -> bool:
    """Return whether a message may match. Of a message whose body is not in RAM that is unknown without a read."""
    if is_lazy(delivery):
        return True
    try:
        return consumer.selector_group.wants(delivery.lane, message_of(delivery))
    except RecordDamaged:
        return False


# ---------------------------------------------------------------------- a queue or subscription. Requires: the lock


def _holders(store: ExplainedStore, places: _Places, asking: Consumer | None) -> list[Cause]:
    """Return as causes the consumers that hold messages, from the view of the asking consumer, or of none."""
    causes = []
    others = [part for holder, part in places.in_flight.items() if holder is not asking]
    parts_by_holder = [("this consumer", [part for holder, part in places.in_flight.items() if holder is asking])]
    other = "other " if asking is not None else ""
    parts_by_holder.append((f"{len(others)} {other}consumer{plural(len(others))}", others))
    for holder, parts in parts_by_holder:
        if parts:
            part = _sum(parts)
            frees = f"acknowledging {_them(part.messages)}, or giving {_them(part.messages)} back"
            causes.append(_cause(store, IN_FLIGHT, holder, part, frees))
    if places.delayed.messages:
        seconds = max(places.delayed_ms - store.times.now_ms(), 0) / 1000
        causes.append(
            _cause(store, DELAYED, "nack with a delay", places.delayed, f"time: the first is due in {seconds:.1f} s")
        )
    if places.due_later.messages:
        seconds = max(places.due_ms - store.times.now_ms(), 0) / 1000
        holder = f"due in {seconds:,.0f} s at the earliest"
        causes.append(_cause(store, DUE_LATER, holder, places.due_later, f"time: the first is due in {seconds:.1f} s"))
    if places.expired.messages:
        causes.append(_cause(store, EXPIRED, "expiry", places.expired, "the next sweep, or a step()"))
    if places.dead_letters.messages:
        frees = "housekeeping, or a step(), as soon as the disk has room"
        causes.append(_cause(store, DEAD_LETTER, "max_attempts", places.dead_letters, frees))
    for holder, part in places.transactions.items():
        causes.append(_cause(store, TRANSACTION, holder, part, f"the outcome of transaction {holder}"))
    if places.unsynced.messages:
        causes.append(_cause(store, SYNC, "journal", places.unsynced, "the sync that their send waits for"))
    return causes


def _free_causes(store: ExplainedStore, destination: CoreDestination, places: _Places) -> list[Cause]:
    """Return what the messages that no consumer has wait for."""
    if not places.free:
        return []
    consumers = [consumer for consumer in destination.consumers() if not consumer.stage.is_draining]
    if not consumers:
        return [
            Cause(NO_CONSUMER, destination.qualified_name, places.free, 0, None, f"a consumer of {destination.name!r}")
        ]
    reach = ReachableMessages(destination, store.times.now_ms)
    reached = [(consumer, found) for consumer in consumers if (found := reach.of(consumer)) is not None]
    if reached:
        return [*_causes_of_reached(store, destination, places, reached)]
    return [*_causes_of_unreached(destination, places, consumers)]


def _causes_of_unreached(
    destination: CoreDestination, places: _Places, consumers: Sequence[CoreConsumer]
) -> Iterator[Cause]:
    """Yield why no consumer can get the free messages."""
    waiting = min(waiting_messages(destination), places.free)
    rest = places.free - waiting
    if waiting:
        yield group_delayed_cause(waiting)
    if not rest:
        return
    if destination.distribution.is_held_up:
        yield group_memory_cause(rest)
        return
    owned = unmatched_by_owners(destination, consumers, rest)
    if owned:
        yield unmatched_by_owners_cause(owned)
    rest -= owned
    unreadable = rest
    if not waiting and all(consumer.selector_group.selector is not None for consumer in consumers):
        unreadable = min(rest, places.unreadable)
    if unreadable:
        yield _unreadable(destination, unreadable)
    if rest > unreadable:
        yield _unmatched(destination.qualified_name, rest - unreadable)


def _causes_of_reached(
    store: ExplainedStore,
    destination: CoreDestination,
    places: _Places,
    reached: Sequence[tuple[CoreConsumer, tuple[TargetList, bool]]],
) -> Iterator[Cause]:
    """Yield what keeps consumers from free messages that come next for them.

    reached: each consumer, and the list that its next take would serve it from, with whether that needs no load.
    """
    free, name = places.free, destination.qualified_name
    able = [
        (consumer, target, is_direct)
        for consumer, (target, is_direct) in reached
        if consumer.credit > 0 and destination.exclusive in (None, consumer)
    ]
    holder = f"{len(reached)} consumer{plural(len(reached))}"
    if destination.is_paused:
        yield _paused(destination, free)
    elif not able:
        hold = "it holds" if len(reached) == 1 else "they hold"
        yield Cause(PREFETCH, holder, free, 0, None, f"acknowledging what {hold}, or a higher prefetch")
    elif store.dispatch_area.is_short_for(destination.memory) and all(consumer.in_flight for consumer, _, _ in able):
        remedy = "settling what is in flight, or a higher memory_limit"
        yield Cause(MEMORY, holder_names.DISPATCH_AREA, free, 0, None, remedy)
    elif any(is_direct for _, _, is_direct in able):
        unmatched = max(_count_unmatched(destination, free) - places.unreadable, 0)
        frees = f"{'its' if len(reached) == 1 else 'their'} next take"
        yield Cause(READY, holder, free - unmatched, 0, None, frees)
        if unmatched:
            yield _unmatched(name, unmatched)
    else:
        yield _loading(store, name, able[0][1])


def _count_unmatched(destination: CoreDestination, free: int) -> int:
    """Return a lower bound of the free messages that every list has examined and left, because no selector matches
    them.

    O(lists).
    """
    if not destination.distribution.is_ordinary:
        return 0
    kept = 0
    for selector_group in destination.selector_groups.values():
        if selector_group.selector is None:
            return 0
        for target in selector_group.lists:
            unseen = max(target.lane.published_end - target.frontier, 0)
            kept += len(target.direct) + target.references.count + target.returned.count + unseen
    return max(free - kept, 0)


def _unmatched(name: str, messages: int) -> Cause:
    frees = f"a consumer whose selector matches {_them(messages)}, or that has none"
    return Cause(SELECTOR, name, messages, 0, None, frees)


# ---------------------------------------------------------------------- words


def _cause(store: ExplainedStore, reason: str, holder: str, part: _Part, frees: str) -> Cause:
    age = max((store.monitor.clock_ms() - part.oldest_ms) / 1000, 0.0) if part.oldest_ms is not None else None
    return Cause(reason, holder, part.messages, part.bytes, age, frees)


def _sum(parts: Sequence[_Part]) -> _Part:
    return _Part(
        sum(part.messages for part in parts),
        sum(part.bytes for part in parts),
        min((part.oldest_ms for part in parts if part.oldest_ms is not None), default=None),
    )


def _with_pause(destination: CoreDestination, causes: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """Return the causes, and add that the queue is paused where no message waits for that alone: it would be next."""
    if not destination.is_paused or any(cause.reason == PAUSED for cause in causes):
        return causes
    return (*causes, _paused(destination, 0))


def _paused(destination: CoreDestination, messages: int) -> Cause:
    return Cause(PAUSED, destination.qualified_name, messages, 0, None, f"queue({destination.name!r}).resume()")


def _unreadable(destination: CoreDestination, messages: int) -> Cause:
    frees = f'opening with on_missing_data_log="report", which sets {_them(messages)} aside'
    return Cause(UNREADABLE, destination.qualified_name, messages, 0, None, frees)


def _them(messages: int) -> str:
    return "it" if messages == 1 else "them"


def _foremost(causes: Sequence[Cause]) -> list[Cause]:
    """Return the causes, or only the first if it is memory: there the largest holder stands for all."""
    return [causes[0]] if causes[0].reason == MEMORY else list(causes)


def _because(cause: Cause) -> str:
    """Return a clause: why a consumer gets nothing."""
    messages = f"{cause.messages:,} message{plural(cause.messages)}"
    held = f", with {messages} that nobody else holds" if cause.messages else ""
    groups = "the group of 1 message is" if cause.messages == 1 else f"the groups of {messages} are"
    found = {
        EMPTY: "nothing is pending there",
        CLOSED: "it is closed",
        DRAINING: "it drains: it takes nothing more and settles what it holds",
        PAUSED: f"the queue is paused{held}",
        PREFETCH: f"it holds {messages}, as many as its prefetch admits",
        MEMORY: f"memory is used up, most of it by {cause.holder} ({size_text(cause.bytes)})",
        LOADING: f"its next messages must be read from disk first, up to {cause.messages:,}",
        EXCLUSIVE: f"another consumer is exclusive, with {messages} that nobody holds",
        GROUP: f"{groups} owned by {cause.holder}",
        PRIORITY: f"a consumer of higher priority takes all, {messages} now",
        SELECTOR: f"its selector does not match {messages}",
    }.get(cause.reason)
    return found if found is not None else _state(cause)


def _state(cause: Cause) -> str:
    """Say how many messages are in the state that a cause describes."""
    one = cause.messages == 1
    messages, verb = f"{cause.messages:,} message{plural(cause.messages)}", "is" if one else "are"
    wait = "waits" if one else "wait"
    return {
        IN_FLIGHT: f"{messages} {verb} in flight with {cause.holder}",
        DELAYED: f"{messages} {verb} delayed",
        DUE_LATER: f"{messages} {verb} {cause.holder}",
        EXPIRED: f"{messages} {'has' if one else 'have'} expired and {'leaves' if one else 'leave'} soon",
        DEAD_LETTER: f"{messages} had the last attempt",
        TRANSACTION: f"{messages} {verb} acknowledged in transaction {cause.holder}",
        SYNC: f"{messages} {verb} stored and not synced yet",
        UNREADABLE: f"{messages} can't be read",
        GROUP: f"{messages} {'is' if one else 'are'} not matched by the owner of {'its' if one else 'their'} group",
        GROUP_DELAYED: f"{messages} {wait} for a delayed one of the same group",
        GROUP_MEMORY: f"{messages} {wait}, as no further group can be held back behind a delayed message",
        SELECTOR: f"no selector of a consumer matches {messages}",
        NO_CONSUMER: f"{messages} {wait} for a consumer, of which there is none",
        PAUSED: f"{messages} {wait} for the queue to be resumed" if cause.messages else "the queue is paused",
        PREFETCH: f"{messages} {wait} for room in the prefetch of {cause.holder}",
        MEMORY: f"{messages} {wait} for memory, which what is in flight has used up",
        READY: f"{messages} {wait} for the next take of {cause.holder}",
        LOADING: f"up to {messages} {wait} to be read from disk",
    }[cause.reason]
