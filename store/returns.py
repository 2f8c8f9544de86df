"""Returns: what the journal is told of deliveries that did not end with an ack.

A record names runs of sequences and how often they were delivered so far. It
is written when messages come back, and before one that came back already is
handed out again: so the count also grows when the process dies of it. It is
not synced for itself. Where it can't be written the count is in RAM alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from .errors import ForebayError
from .format.record import RANGES_MAX, RETURN, Returned, returns_payload
from .index.delivery_counts import CountedRun
from .index.lane import LANE_MASK, LANE_SHIFT
from .message_store import MessageStore

logger = logging.getLogger("forebay.store")


def count(store: MessageStore, lane: int, runs: Sequence[CountedRun]) -> None:
    """These messages of a lane were delivered so often. One record for up to 4,096 runs. REQUIRES: state lock."""
    table = store.index.attempts
    for run in runs:
        table.put(lane, *run)
    if not table.is_recorded(lane):
        return
    try:
        for at in range(0, len(runs), RANGES_MAX):
            part = [Returned(run.first, run.last - run.first + 1, run.attempts) for run in runs[at : at + RANGES_MAX]]
            payload = returns_payload(lane >> LANE_SHIFT, part)
            store.journal.append(RETURN, lane & LANE_MASK, len(part), payload)
    except ForebayError as error:
        logger.debug("attempts are counted in RAM alone: %s", error)
