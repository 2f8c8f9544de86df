"""Which data logs nothing needs any more. Pure arithmetic over exact counts, O(data logs)."""

from __future__ import annotations

from collections.abc import Mapping

from .index import DataLogUse


def removable(uses: Mapping[int, DataLogUse], newest: int) -> list[int]:
    """Ids below newest that hold no pending message, and no ack for a message in a data log that remains.

    The second rule is a chain: a data log that remains only for its acks still
    replays its own messages after the index is lost, so their acks must remain
    too. (ActiveMQ learned it in AMQ-2832 and AMQ-6203.)
    """
    remaining = {data_log for data_log, use in uses.items() if data_log >= newest or use.pending_messages}
    candidates = set(uses) - remaining
    while True:
        needed = {data_log for data_log in candidates if not remaining.isdisjoint(uses[data_log].acked_data_logs)}
        if not needed:
            return sorted(candidates)
        candidates -= needed
        remaining |= needed
