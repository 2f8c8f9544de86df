"""Explains why a consumer gets nothing, and who holds the messages of a queue: the state of one moment, in words.

A consumer that may take gets free messages that match its selector. The explanation names what keeps it from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...cache.accounting import holder_names
from ...cache.accounting.charge import OVERHEAD_BYTES
from ...store.errors import SettingsError
from ...store.format.record import RecordDamaged
from ..consumer.consumer import Consumer
from ..core.memory.memory_statistics import MemoryStatistics
from ..core.model.delivery import AbstractConsumer, Delivery, is_lazy, message_of
from ..core.model.destination import CoreConsumer, CoreDestination, TargetList
from ..engine.explained_store import ExplainedStore
from ..queue import Queue
from ..topic import Topic
from .assignment_causes import (
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
from .clauses import because, state, them
from .disk import MEMORY, memory_causes
from .message_places import MessagePlaces, Tally, find_places
from .reachable_messages import ReachableMessages
from .reasons import (
    CLOSED,
    DEAD_LETTER,
    DELAYED,
    DRAINING,
    DUE_LATER,
    EMPTY,
    EXPIRED,
    IN_FLIGHT,
    LOADING,
    NO_CONSUMER,
    PAUSED,
    PREFETCH,
    READY,
    SELECTOR,
    SYNC,
    TRANSACTION,
    UNREADABLE,
)
from .texts import plural, size_text
from .topics import explain_topic


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
    said = " and ".join(because(cause) for cause in _foremost(causes))
    return Explanation(f"The consumer of {name} gets nothing because {said}.", causes)


def explain_destination(store: ExplainedStore, destination: CoreDestination) -> Explanation:
    """Explain who holds the messages of a queue or subscription, and what senders wait for. Requires: no lock."""
    with store.monitor.lock, store.monitor.all_or_broken:
        store.times.due.release_due()
        places = find_places(store, destination)
        causes = _with_pause(destination, (*_holders(store, places, None), *_free_causes(store, destination, places)))
    store.monitor.run_deferred()
    blocked = explain_blocked(store, destination)
    name = destination.qualified_name
    if not causes and not blocked:
        return Explanation(f"{name} has no messages.", ())
    sentence = f"{name} has {places.depth:,} message{plural(places.depth)} of {size_text(places.bytes)}"
    if not places.depth:
        sentence = f"{name} has no messages"
    said = [*map(state, causes), *(clause for _, clause in blocked)]
    return Explanation(f"{sentence}: {'; '.join(said)}.", (*causes, *(cause for cause, _ in blocked)))


# ---------------------------------------------------------------------- a consumer. Requires: the lock


def _consumer_causes(store: ExplainedStore, consumer: Consumer) -> list[Cause]:
    """Return the causes, at least one, starting with the most important."""
    destination, dispatch_area = consumer.destination, store.dispatch_area
    name = destination.qualified_name
    if consumer.stage.is_closed:
        return [Cause(CLOSED, name, 0, 0, None, "another subscribe")]
    if consumer.stage.is_draining:
        return [Cause(DRAINING, name, 0, 0, None, "another subscribe")]
    places = find_places(store, destination)
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


def _prefetch_causes(store: ExplainedStore, consumer: Consumer, places: MessagePlaces) -> list[Cause]:
    own = places.in_flight.get(consumer, Tally())
    causes = []
    if own.messages:
        one = "it" if own.messages == 1 else "one of them"
        frees = f"acknowledging or giving back {one}, or a higher prefetch"
        causes.append(_cause(store, PREFETCH, "this consumer", own, frees))
    if own.messages < consumer.in_flight:
        causes += [
            _cause(store, TRANSACTION, holder, tally, f"the outcome of transaction {holder}")
            for holder, tally in places.transactions.items()
        ]
    return causes


def _in_flight_memory(store: ExplainedStore) -> list[Cause]:
    """Return who holds the memory of messages that are handed out, starting with whoever holds most."""
    tallies: dict[str, Tally] = {}
    for lane in store.list_registry.lanes():
        for delivery in lane.deliveries.values():
            tallies.setdefault(lane.destination.qualified_name, Tally()).add(delivery)
    for transaction in store.transactions.undecided.values():
        for delivery in transaction.held:
            tallies.setdefault(f"transaction {transaction.name}", Tally()).add(delivery)
    ranked = sorted(tallies.items(), key=lambda found: -found[1].bytes)
    frees = "settling what is in flight, or a higher memory_limit"
    return [_cause(store, MEMORY, holder, tally, frees) for holder, tally in ranked]


def _elsewhere(store: ExplainedStore, consumer: Consumer, places: MessagePlaces) -> list[Cause]:
    """Explain who has the messages that a consumer could get, and how many messages it does not want.

    Requires: no free message is within the consumer's reach.
    """
    selector_group, unmatched = consumer.selector_group, places.free
    if selector_group.selector is not None:
        wanted: dict[AbstractConsumer, Tally] = {}
        for delivery in (held for lane in consumer.destination.all_lanes() for held in lane.deliveries.values()):
            if _may_match(consumer, delivery):
                wanted.setdefault(delivery.consumer, Tally()).add(delivery)
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
    """Return whether a message may match the consumer's selector. A message that is not in RAM may."""
    if is_lazy(delivery):
        return True
    try:
        return consumer.selector_group.wants(delivery.lane, message_of(delivery))
    except RecordDamaged:
        return False


# ---------------------------------------------------------------------- a queue or subscription. Requires: the lock


def _holders(store: ExplainedStore, places: MessagePlaces, asking: Consumer | None) -> list[Cause]:
    """Return a cause for each place in which messages are not free.

    asking: the consumer that is explained, which is named as "this consumer"; None: the queue is explained.
    """
    causes = []
    others = [tally for holder, tally in places.in_flight.items() if holder is not asking]
    tallies_by_holder = [("this consumer", [tally for holder, tally in places.in_flight.items() if holder is asking])]
    other = "other " if asking is not None else ""
    tallies_by_holder.append((f"{len(others)} {other}consumer{plural(len(others))}", others))
    for holder, tallies in tallies_by_holder:
        if tallies:
            tally = Tally.total(tallies)
            frees = f"acknowledging {them(tally.messages)}, or giving {them(tally.messages)} back"
            causes.append(_cause(store, IN_FLIGHT, holder, tally, frees))
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
    for holder, tally in places.transactions.items():
        causes.append(_cause(store, TRANSACTION, holder, tally, f"the outcome of transaction {holder}"))
    if places.unsynced.messages:
        causes.append(_cause(store, SYNC, "journal", places.unsynced, "the sync that their send waits for"))
    return causes


def _free_causes(store: ExplainedStore, destination: CoreDestination, places: MessagePlaces) -> list[Cause]:
    """Return what the free messages wait for."""
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
    destination: CoreDestination, places: MessagePlaces, consumers: Sequence[CoreConsumer]
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
    places: MessagePlaces,
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
    frees = f"a consumer whose selector matches {them(messages)}, or that has none"
    return Cause(SELECTOR, name, messages, 0, None, frees)


# ---------------------------------------------------------------------- words


def _cause(store: ExplainedStore, reason: str, holder: str, tally: Tally, frees: str) -> Cause:
    age = max((store.monitor.clock_ms() - tally.oldest_ms) / 1000, 0.0) if tally.oldest_ms is not None else None
    return Cause(reason, holder, tally.messages, tally.bytes, age, frees)


def _with_pause(destination: CoreDestination, causes: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """Return the causes. If the queue is paused and no cause says so yet, that is added as the last one."""
    if not destination.is_paused or any(cause.reason == PAUSED for cause in causes):
        return causes
    return (*causes, _paused(destination, 0))


def _paused(destination: CoreDestination, messages: int) -> Cause:
    return Cause(PAUSED, destination.qualified_name, messages, 0, None, f"queue({destination.name!r}).resume()")


def _unreadable(destination: CoreDestination, messages: int) -> Cause:
    frees = f'opening with on_missing_data_log="report", which sets {them(messages)} aside'
    return Cause(UNREADABLE, destination.qualified_name, messages, 0, None, frees)


def _foremost(causes: Sequence[Cause]) -> list[Cause]:
    """Return the causes to be said. If memory is used up, the largest holder of memory is enough."""
    return [causes[0]] if causes[0].reason == MEMORY else list(causes)
