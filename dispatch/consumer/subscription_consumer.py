"""SubscriptionConsumer: the one consumer of a subscription."""

from __future__ import annotations

from collections.abc import Sequence

from ...store.errors import TransactionError
from ..core.delivery import Delivery
from ..topics.state import SubscriptionState, remove_unrecorded
from ..transactions.transaction import Transaction
from .consumer import Consumer


class SubscriptionConsumer(Consumer):
    """Made by `Topic.subscribe`. Everything a consumer of a queue is."""

    def close_locked(self) -> None:
        if not self._is_closed:
            super().close_locked()
            assert isinstance(self._queue, SubscriptionState)
            self._engine.topics.leave(self._queue)

    def _ack_in(self, transaction: object, deliveries: object) -> None:
        self._engine.transactions.checked(transaction)
        raise TransactionError(f"the topic {self._queue.name!r} takes no part in transactions: acknowledge without one")


class UnrecordedConsumer(SubscriptionConsumer):
    """Of a subscription that is not durable: what it acknowledges no record needs to say."""

    def ack(self, deliveries: Delivery | Sequence[Delivery], *, transaction: Transaction | None = None) -> None:
        """Done with them: none is delivered again. No journal record."""
        super().ack((deliveries,) if type(deliveries) is Delivery else deliveries, transaction=transaction)

    def _ack_runs(self, ordered: Sequence[Delivery]) -> int:
        targets = self._engine.targets
        begin = 0
        while begin < len(ordered):
            area, sequence = ordered[begin]._area, ordered[begin].sequence
            end = begin + 1
            while end < len(ordered) and ordered[end].sequence == sequence + end - begin and ordered[end]._area is area:
                end += 1
            area.acknowledged += remove_unrecorded(area, sequence, ordered[end - 1].sequence)
            targets.settle_run(area, ordered[begin:end])
            begin = end
        return begin
