"""The data logs that nothing needs any more: arithmetic over exact counts.

The data logs are the nodes of a graph. An edge leads from a data log to another one that holds acks or commits for its
messages. What is reached from a data log that remains, remains too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain

from ..index.data_log_use import DataLogUse
from ..numbering import location_text


def removable(uses: Mapping[int, DataLogUse], replayed_from: int, kept: Collection[int] = ()) -> list[int]:
    """Return the ids of data logs without pending messages, and without acks or commits for a data log that remains.

    The rule about acks and commits is a chain: a data log that remains only for its acks still replays its own messages
    if the index is lost, so their acks must remain too. (ActiveMQ learned this in AMQ-2832 and AMQ-6203.)

    replayed_from: the id from which on data logs remain, because the next open may replay them.
    kept: data logs that stay for other reasons, such as transactions without an outcome and leases.

    O(data logs + edges), and sorting the result. Each set of a DataLogUse is read once at most.
    """
    remaining = {data_log for data_log, use in uses.items() if data_log >= replayed_from or use.pending_messages}
    remaining |= uses.keys() & kept
    # For each data log, the others that hold acks or commits for its messages.
    holders: dict[int, list[int]] = {}
    for data_log in uses.keys() - remaining:
        use = uses[data_log]
        for needing in chain(use.acked_data_logs, use.committed_data_logs):
            holders.setdefault(needing, []).append(data_log)
    unvisited = list(remaining)
    while unvisited:
        for holder in holders.pop(unvisited.pop(), ()):
            if holder not in remaining:
                remaining.add(holder)
                unvisited.append(holder)
    return sorted(uses.keys() - remaining)


def decision_lines(
    uses: Mapping[int, DataLogUse],
    replayed_from: int,
    kept: Collection[int] = (),
    *,
    last_update: int,
    first_transaction: int | None = None,
    destinations: Mapping[str, Collection[int]],
) -> list[str]:
    """Return how the decision of `removable` is made, one line for each step.

    The lines have the wording of the trace of ActiveMQ's MessageDatabase, a class of KahaDB. So an operator can read
    them by the guides there are for KahaDB, and compare the two stores. "gc candidates" are the data logs that may
    still be removed, and "first tx" is the oldest transaction without an outcome.

    last_update: position up to which the index is on disk. first_transaction: position of the first one without an
        outcome. destinations: the data logs that hold a pending message of each, by name ("0:orders").
    """
    candidates = set(uses)
    lines = [f"Last update: {location_text(last_update)}, full gc candidates set: {sorted(candidates)}"]
    start = last_update if first_transaction is None else min(first_transaction, last_update)
    candidates = {data_log for data_log in candidates if data_log < replayed_from}.difference(kept)
    lines.append(f"gc candidates after first tx:{location_text(start)}, {sorted(candidates)}")
    for name, data_logs in destinations.items():
        candidates -= {data_log for data_log in candidates.intersection(data_logs) if uses[data_log].pending_messages}
        lines.append(f"gc candidates after dest:{name}, {sorted(candidates)}")
        if not candidates:
            break
    doomed = removable(uses, replayed_from, kept)
    remaining = set(uses).difference(doomed)
    for data_log in sorted(candidates.difference(doomed)):
        use = uses[data_log]
        kept_for = sorted(remaining.intersection(use.acked_data_logs | use.committed_data_logs))
        kinds = "acks and commits" if remaining.intersection(use.committed_data_logs) else "acks"
        lines.append(f"not removing data log {data_log}: it holds {kinds} for messages in {kept_for}")
    lines.append(f"gc candidates: {doomed}")
    return lines
