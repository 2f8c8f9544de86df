"""Explains for the log why a consumer waits and gets nothing."""

from __future__ import annotations

from typing import Final

from ..consumer.consumer import Consumer
from ..consumer.stuck_consumers import level_of
from ..core.model.destination import CoreConsumer
from ..engine.explained_store import ExplainedStore
from .disk import MEMORY
from .queues import explain_consumer
from .reasons import CLOSED, DRAINING, EMPTY, LOADING, PREFETCH, READY, SELECTOR, TRANSACTION, UNREADABLE

_NOT_STUCK: Final = frozenset((CLOSED, DRAINING, EMPTY, READY))
_WARNED_OF: Final = frozenset((LOADING, MEMORY, PREFETCH, TRANSACTION, UNREADABLE))
"""Reasons that do not pass by themselves, or should have passed long ago."""


def why_stuck(store: ExplainedStore, consumer: CoreConsumer) -> tuple[int, str] | None:
    """Return the level and the sentence for the log, or None if the consumer is not stuck after all.

    Requires: the lock is not held.
    """
    assert isinstance(consumer, Consumer), "every consumer of a store is one"
    explanation = explain_consumer(store, consumer)
    reason, sentence = explanation.causes[0].reason, explanation.sentence
    if reason in _NOT_STUCK:
        return None
    if reason == PREFETCH and consumer.in_flight == consumer.delivered:
        sentence += " It has acknowledged none so far: call ack() of each delivery when it is processed."
    # If others take the rest, it is normal that a selector matches nothing at the moment.
    is_alone = reason == SELECTOR and len(consumer.destination.selector_groups) == 1
    return level_of(is_stuck=is_alone or reason in _WARNED_OF), sentence
