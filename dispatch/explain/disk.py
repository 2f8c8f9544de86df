"""Explains why disk and memory are held, as data and in one sentence each.

store/maintenance/retention_reasons.py gives the facts; this module gives the words. The same function explains a data
log in a live process and on the command line, which sees only the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ...cache.accounting import holder_names
from ...store.format.state_record import QUEUE
from ...store.maintenance.retention_reasons import (
    ACK,
    CHECKPOINT_HOLDER,
    IN_USE,
    LEASE,
    PENDING_MESSAGE,
    RETENTION,
    TRANSACTION,
    RetentionReason,
)
from ...store.structures.sequence_set import SequenceSet
from ..core.memory.memory_statistics import MemoryStatistics
from .cause import Cause, Explanation
from .texts import age_text, plural, size_text

MEMORY: Final = "memory"

HOLDERS_SAID: Final = 3
"""The most holders in the sentence. All of them are in the causes."""

_RETENTION_OF: Final = f"{RETENTION} of "

_FREES_MEMORY: Final = {
    holder_names.INDEX: "fewer pending messages; it stays within index_cache_size",
    holder_names.METADATA_STORE: "nothing: it is fixed, a quarter of index_cache_size",
    holder_names.WRITE_BUFFERS: "nothing: they are fixed",
    holder_names.READ_BUFFERS: "the end of the reads that are under way",
    holder_names.BROWSERS: "the end of the browses that are under way",
    holder_names.TARGET_LISTS: "consumers that take; it is given up where it is needed",
    holder_names.DISPATCH_AREA: "consumers that acknowledge what they took",
    holder_names.PENDING_CACHE: "consumers that take; it is given up where it is needed",
    holder_names.HEAD_QUEUE_CACHE: "nothing needs to: it is given up first",
    holder_names.DESTINATIONS: (
        "fewer queues, topics and durable subscriptions: Queue.delete, Topic.delete and Topic.unsubscribe"
    ),
    holder_names.CONSUMERS: "fewer consumers: Consumer.close; each selector of its own has lists of its own",
    holder_names.CURVE: "fewer consumers with selectors of their own; it is a 64th of the limit at most",
    holder_names.TRACE: "an open without record_trace",
    holder_names.ARCHIVE: "nothing: it is fixed while there is an archive_directory",
    holder_names.KEYS: "subscribers that take, or another eviction than latest_per_key",
    holder_names.UNSYNCED: "the sync that is under way",
    holder_names.SPILL_BUFFER: "nothing needs to: it goes to tmp-storage",
    holder_names.TMP_STORAGE: "consumers that acknowledge non-persistent messages",
    holder_names.RELOCATION: "the end of the step that is under way",
    holder_names.ATTEMPTS: "the acknowledgement of messages that came back",
    holder_names.GROUPS: "the end of the delays of messages with a group, or their settling",
    holder_names.DEADLINES: (
        "the close of consumers with an ack deadline, and the settling of deliveries that were extended"
    ),
    holder_names.DUPLICATES: "a smaller duplicate_window, or fewer producers with one",
    holder_names.PROPERTIES: "del bay.properties[name], and the outcome of transactions that set some",
    holder_names.TRANSACTIONS: "the commit or the rollback of transactions",
}


def explain_data_log(data_log: int, size_bytes: int, reasons: Sequence[RetentionReason], now_ms: int) -> Explanation:
    """Explain why a data log remains."""
    name = f"data-{data_log}.log ({size_text(size_bytes)})"
    if not reasons:
        return Explanation(f"Nothing needs {name} any more: the next cleanup removes it.", ())
    said = [_because(reason, now_ms) for reason in reasons[:HOLDERS_SAID]]
    more = len(reasons) - len(said)
    if more:
        said.append(f"for {more:,} more reason{plural(more)}")
    causes = tuple(_cause(reason, now_ms, _frees(reason)) for reason in reasons)
    return Explanation(f"{name} remains {', and '.join(said)}.", causes)


def explain_whole(
    sizes: Mapping[int, int],
    reasons: Mapping[int, Sequence[RetentionReason]],
    now_ms: int,
    memory: MemoryStatistics | None = None,
    could_give: Sequence[tuple[str, int]] = (),
) -> Explanation:
    """Explain who holds the disk, and who holds memory.

    reasons: by data log, the reasons that keep it.
    could_give: who could give memory back, and how many bytes, in the order in which they would.
    """
    # By (reason, holder), the data logs that it keeps; those kept for acks count for whom they are kept.
    kept: dict[tuple[str, str], list[int]] = {}
    parts: dict[tuple[str, str], list[RetentionReason]] = {}
    for data_log, found in reasons.items():
        for reason in found:
            key = (reason.kind if reason.kind != ACK else PENDING_MESSAGE, reason.holder)
            kept.setdefault(key, []).append(data_log)
            if reason.kind != ACK:
                parts.setdefault(key, []).append(reason)
    sums = {key: _sum(found) for key, found in parts.items()}
    causes = [
        _cause(sums[key], now_ms, f"{_frees(sums[key])}: {_logs_text(data_logs, sizes)}")
        for key, data_logs in kept.items()
        if key in parts
    ]
    pending = [reason for found in parts.values() for reason in found if reason.kind != RETENTION]
    messages = sum(reason.messages - reason.shared_messages for reason in pending)
    size_bytes = sum(reason.bytes - reason.shared_bytes for reason in pending)
    order = [key for key in kept if key in parts]
    ranked = sorted(zip(order, causes, strict=True), key=lambda found: -_bytes_of(kept[found[0]], sizes))
    sentence = _disk_sentence(sizes, reasons, messages, size_bytes, [(cause, kept[key]) for key, cause in ranked])
    causes = [cause for _, cause in ranked]
    if memory is not None:
        sentence = f"{memory_sentence(memory, could_give)} {sentence}"
        causes += memory_causes(memory)
    return Explanation(sentence, tuple(causes))


def memory_sentence(memory: MemoryStatistics, could_give: Sequence[tuple[str, int]]) -> str:
    """Say how much memory is held, by whom most, and who would give some back.

    could_give: who could give memory back, and how many bytes, in the order in which they would.
    """
    most = max(memory.holders.items(), key=lambda found: found[1])
    return (
        f"Memory: {size_text(memory.held_bytes)} of {size_text(memory.limit_bytes)} are held, "
        f"most by {most[0]} ({size_text(most[1])}){_shares_text(memory)}; {_turn_text(could_give)}."
    )


def _shares_text(memory: MemoryStatistics) -> str:
    """Return a text about the patterns that hold most, with the share and the reserve of their policies."""
    held_most = sorted(memory.shares.items(), key=lambda found: -found[1].held_bytes)
    return "".join(
        f", by {pattern!r} {size_text(share.held_bytes)} of a share of {size_text(share.share_bytes)}"
        + (f" and a reserve of {size_text(share.reserve_bytes)}" if share.reserve_bytes else "")
        for pattern, share in held_most[:HOLDERS_SAID]
    )


def _turn_text(could_give: Sequence[tuple[str, int]]) -> str:
    """Return a text that tells who gives memory back first, and who next."""
    if not could_give:
        return "nobody could give any back"
    said = [f"{name} ({size_text(size_bytes)})" for name, size_bytes in could_give]
    return f"given back first by {said[0]}" + "".join(f", then {giver}" for giver in said[1:])


def memory_causes(memory: MemoryStatistics) -> list[Cause]:
    """Return the holders of memory as causes, the largest first."""
    return [
        Cause(MEMORY, holder, 0, held_bytes, None, _FREES_MEMORY.get(holder, "its own end"))
        for holder, held_bytes in sorted(memory.holders.items(), key=lambda found: -found[1])
        if held_bytes
    ]


def ids_text(data_logs: Iterable[int]) -> str:
    """Return ids as ranges, such as "1 to 3, 7, 9 to 12"."""
    runs = SequenceSet()
    for data_log in sorted(data_logs):
        runs.add(data_log, data_log)
    return ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in runs) or "none"


def _cause(reason: RetentionReason, now_ms: int, frees: str) -> Cause:
    return Cause(reason.kind, reason.holder, reason.messages, reason.bytes, _age(reason, now_ms), frees)


def _age(reason: RetentionReason, now_ms: int) -> float | None:
    return max((now_ms - reason.oldest_ms) / 1000, 0.0) if reason.oldest_ms is not None else None


def _sum(reasons: Sequence[RetentionReason]) -> RetentionReason:
    return RetentionReason(
        reasons[0].kind,
        reasons[0].holder,
        sum(reason.messages for reason in reasons),
        sum(reason.bytes for reason in reasons),
        oldest_ms=min((reason.oldest_ms for reason in reasons if reason.oldest_ms is not None), default=None),
        subscription=reasons[0].subscription,
    )


def _because(reason: RetentionReason, now_ms: int) -> str:
    age = _age(reason, now_ms)
    messages = f"{reason.messages:,} message{plural(reason.messages)} of {size_text(reason.bytes)}"
    since = f", the first sent {age_text(age)} ago" if age is not None else ""
    if reason.kind == RETENTION:
        topic = reason.holder.removeprefix(_RETENTION_OF)
        return f"because the policy of {topic} retains {messages} in it{since}"
    if reason.kind == PENDING_MESSAGE:
        return f"because {reason.holder} has {messages} pending in it{since}"
    if reason.kind == ACK:
        s = "s" if len(reason.data_logs) == 1 else ""
        needed = f"because acks in it are needed as long as {_names(reason.data_logs)} remain{s}"
        if not reason.messages:
            return f"{needed} for {reason.holder}"
        return f"{needed}, which hold{s} {messages} of {reason.holder}"
    if reason.kind == TRANSACTION:
        return f"because transaction {reason.holder} has messages in it and no outcome yet"
    if reason.kind == LEASE:
        return f"because {reason.holder} keeps it for a reader that has not come to its end"
    if reason.holder == CHECKPOINT_HOLDER:
        return "because the index on disk is older, for the last checkpoint found no room"
    return "because the journal is being written to it"


def _frees(reason: RetentionReason) -> str:
    if reason.kind == IN_USE:
        return "room for a checkpoint" if reason.holder == CHECKPOINT_HOLDER else "the next data log, once this is full"
    if reason.kind == LEASE or reason.holder.startswith(f"{LEASE} "):
        return f"the progress of the reader of {reason.holder}, or the end of the lease"
    topic = reason.holder.removeprefix(_RETENTION_OF)
    if topic != reason.holder:
        return f"time (retain_seconds) or newer messages (retain_bytes), as the policy of {topic} says"
    if not reason.messages:
        return f"the commit or the rollback of transaction {reason.holder}"
    kind, _, name = reason.holder.partition(":")
    purge = f", or queue({name!r}).purge()" if kind == str(QUEUE) else ""
    if reason.subscription:
        purge = f", or topic({name.removesuffix('/' + reason.subscription)!r}).unsubscribe({reason.subscription!r})"
    where = f" in {_names(reason.data_logs)}" if reason.kind == ACK else ""
    those = "that message" if reason.messages == 1 else "those messages"
    return f"acknowledging {those}{where}{purge}"


def _names(data_logs: Sequence[int]) -> str:
    if len(data_logs) == 1:
        return f"data-{data_logs[0]}.log"
    return f"the data logs {ids_text(data_logs)}"


def _bytes_of(data_logs: Iterable[int], sizes: Mapping[int, int]) -> int:
    return sum(sizes.get(data_log, 0) for data_log in data_logs)


def _logs_text(data_logs: Sequence[int], sizes: Mapping[int, int]) -> str:
    return f"{len(data_logs):,} data log{plural(len(data_logs))} of {size_text(_bytes_of(data_logs, sizes))}"


def _disk_sentence(
    sizes: Mapping[int, int],
    reasons: Mapping[int, Sequence[RetentionReason]],
    messages: int,
    size_bytes: int,
    ranked: Sequence[tuple[Cause, list[int]]],
) -> str:
    sentence = (
        f"Disk: {_logs_text(list(sizes), sizes)} for {messages:,} pending message{plural(messages)} "
        f"of {size_text(size_bytes)}"
    )
    holders = [(cause, data_logs) for cause, data_logs in ranked if cause.reason != IN_USE]
    if holders:
        cause, data_logs = holders[0]
        sentence += f"; {cause.holder} keeps {_logs_text(data_logs, sizes)}"
    idle = [data_log for data_log in sizes if not reasons.get(data_log)]
    if idle:
        verb = "is" if len(idle) == 1 else "are"
        sentence += f"; {_logs_text(idle, sizes)} {verb} needed by nothing any more"
    return sentence + "."
