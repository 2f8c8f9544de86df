"""Explains why a send waits: since when, for which limit, and who holds what it waits for.

The limits of a destination are used up by the destination itself. The limits of the store are used up by the
destination that keeps most of the journal, and that of tmp-storage by the one that has most in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from ...store.maintenance.retention_reasons import PENDING_MESSAGE
from ..admission.limits import LimitedDestination
from ..admission.space_line import SpaceLine
from ..core.model.destination import CoreDestination
from ..engine.explained_store import ExplainedStore
from .cause import Cause
from .disk import explain_whole
from .texts import age_text, plural, size_text

BLOCKED_SEND: Final = "blocked_send"


class _Blocked(NamedTuple):
    destination: LimitedDestination
    limit: str
    sizes: Sequence[int]
    seconds: float


class _Holder(NamedTuple):
    """Who holds most of something, how many bytes, and how long ago its oldest message was sent, if that is known."""

    name: str
    bytes: int
    oldest_seconds: float | None = None


def explain_blocked(store: ExplainedStore, destination: CoreDestination | None = None) -> list[tuple[Cause, str]]:
    """Yield the cause and a clause of each send that waits, in order.

    Requires: the lock is not held. While something waits, the cost is that of explaining the whole store.

    destination: only sends to it count, or None for sends to any.
    """
    with store.monitor.lock:
        of_own = list(_at_admissions(store, destination))
        of_store = list(_in_line(store, store.disk.space.journal, destination))
        of_tmp = list(_in_line(store, store.disk.space.tmp_storage, destination))
        spillers = _most_spilled(store) if of_tmp else None
        store_limit = store.disk.fullness.limit_bytes
    causes = _journal_causes(store) if of_own or of_store else []
    explained: list[tuple[Cause, str]] = []
    for blocked in of_own:
        names = blocked.destination.qualified_names()
        own = next((cause for cause in causes if cause.holder in names), None)
        holder = _Holder(own.holder, own.bytes, own.oldest_seconds) if own is not None else None
        frees = f"acknowledging messages of {blocked.destination.name!r}, or a higher limit in its policy"
        explained.append(_explained(blocked, holder, frees))
    most = next(iter(causes), None)
    for blocked in of_store:
        holder = _Holder(most.holder, most.bytes, most.oldest_seconds) if most is not None else None
        of = f" of {size_text(store_limit)}" if store_limit is not None and blocked.limit == "store_limit" else ""
        explained.append(_explained(blocked, holder, most.frees if most is not None else "free disk space", of))
    for blocked in of_tmp:
        of = f" of {size_text(store.memory.overflow.storage.limit_bytes)}" if blocked.limit == "temp_limit" else ""
        frees = "consuming non-persistent messages" + (f" of {spillers.name}" if spillers is not None else "")
        explained.append(_explained(blocked, spillers, frees, of))
    return explained


def _at_admissions(store: ExplainedStore, destination: CoreDestination | None) -> Iterator[_Blocked]:
    everywhere = (*store.queues.by_name.values(), *store.topics.by_name.values())
    destinations = [destination] if destination is not None else everywhere
    now = store.monitor.monotonic()
    for each in destinations:
        if each.limits is not None:
            for limit, sizes, began in each.limits.blocked():
                yield _Blocked(each, limit, sizes, now - began)


def _in_line(store: ExplainedStore, line: SpaceLine, destination: CoreDestination | None) -> Iterator[_Blocked]:
    now = store.monitor.monotonic()
    for waiting in line:
        if destination is None or waiting.destination is destination:
            yield _Blocked(waiting.destination, waiting.full.limit, waiting.sizes, now - waiting.began)


def _journal_causes(store: ExplainedStore) -> list[Cause]:
    """Return who has pending messages, starting with whoever keeps most of the journal."""
    reasons = store.disk.data_log_retention.reasons().all()
    whole = explain_whole(store.disk.disk_use.sizes(), reasons, store.monitor.clock_ms())
    return [cause for cause in whole.causes if cause.reason == PENDING_MESSAGE]


def _most_spilled(store: ExplainedStore) -> _Holder | None:
    """Return the destination that has most in tmp-storage, or None if it is empty. Requires: the lock."""
    held: Counter[str] = Counter()
    subscriptions = chain.from_iterable(topic.open_subscriptions() for topic in store.topics.by_name.values())
    names = {each.number: each.qualified_name for each in (*store.queues.by_name.values(), *subscriptions)}
    for pending_lane in store.memory.overflow.lanes.values():
        held[names[pending_lane.owner_number]] += pending_lane.pending_bytes
    for name, size_bytes in held.most_common(1):
        if size_bytes:
            return _Holder(name, size_bytes)
    return None


def _explained(blocked: _Blocked, holder: _Holder | None, frees: str, of: str = "") -> tuple[Cause, str]:
    """Return the cause of a wait, and the clause that says it.

    of: how much there is of what the send waits for.
    """
    messages, size_bytes = len(blocked.sizes), sum(blocked.sizes)
    oldest_seconds = holder.oldest_seconds if holder is not None else None
    cause = Cause(BLOCKED_SEND, blocked.limit, messages, size_bytes, oldest_seconds, frees)
    what = f"{messages:,} message{plural(messages)} ({size_text(size_bytes)})"
    clause = (
        f"a send of {what} to {blocked.destination.name!r} has been blocked "
        f"{blocked.seconds:.1f} s: it waits for room under {blocked.limit}"
    )
    if holder is not None:
        since = f", the oldest message sent {age_text(oldest_seconds)} ago" if oldest_seconds is not None else ""
        clause += f"; {holder.name} holds {size_text(holder.bytes)}{of}{since}"
    return cause, clause
