"""TransactionRegistry: all transactions of a store without an outcome. After a crash it has the prepared ones again."""

from __future__ import annotations

from collections.abc import Callable, Container

from ...cache.accounting.charge import OVERHEAD_BYTES
from ...store.errors import ArgumentError, SettingsError, TransactionError
from ...store.format.branch import Branch
from ..core.lanes.persistent_lane_state import PersistentLaneState
from ..core.model.delivery import Delivery, content_bytes
from ..core.model.destination import CoreConsumer
from .transaction import BRANCH_CHARGE_BYTES, Transaction, TransactionParts


class TransactionRegistry:
    """All transactions of a store without an outcome.

    The state lock guards it. Every method except `begin` requires the state lock.
    """

    def __init__(self, parts: TransactionParts) -> None:
        self._parts = parts
        # By number, in the order in which they were begun.
        self.undecided: dict[int, Transaction] = {}

    def begin(self) -> Transaction:
        """Begin a transaction. StoreFull: memory_limit has no room for another one."""
        with self._parts.monitor.lock, self._parts.monitor.while_open:
            self._parts.memory.charge(BRANCH_CHARGE_BYTES)
            return self._add(self._parts.transaction_writer.begin())

    def _add(self, branch: Branch) -> Transaction:
        transaction = self.undecided[branch.number] = Transaction(self._parts, branch, self.undecided.pop)
        return transaction

    def recover(self, lane: Callable[[int], PersistentLaneState]) -> None:
        """Restore prepared transactions after an open. Messages that they acknowledge wait for the outcome.

        lane: returns the lane of a queue, topic or durable subscription by its number. SettingsError: memory_limit is
            smaller than they need.
        """
        for branch in self._parts.branches.prepared:
            transaction = self._add(branch)
            charge = transaction.charge_bytes
            if not self._parts.memory.reserve(charge):
                raise SettingsError(
                    f"memory_limit has no room for the {charge} bytes of a prepared transaction: raise it"
                )
            transaction.recover(lane)

    def checked(self, transaction: object) -> Transaction:
        """Return the transaction argument of a call. ArgumentError, TransactionError. The lock need not be held."""
        if type(transaction) is not Transaction:
            raise ArgumentError(f"a transaction is expected, not {type(transaction).__name__}")
        if transaction.parts is not self._parts:
            raise TransactionError("the transaction belongs to another store")
        return transaction

    def use_destinations(self, numbers: Container[int]) -> bool:
        """Return whether a transaction sends to one of these destinations or acknowledges there. O(transactions)."""
        return any(transaction.uses_destinations(numbers) for transaction in self.undecided.values())

    def destination_numbers(self) -> set[int]:
        """Return the numbers of all destinations in which a transaction sends or acknowledges."""
        return {number for transaction in self.undecided.values() for number in transaction.destination_numbers()}

    def raise_if_held(self, delivery: Delivery) -> None:
        """Raise TransactionError if a transaction has acknowledged this delivery."""
        if any(transaction.holds(delivery) for transaction in self.undecided.values()):
            raise TransactionError("the message was acknowledged in a transaction, which decides about it")

    def held_by(self, consumer: CoreConsumer) -> list[Delivery]:
        """Return the deliveries of a consumer that open transactions hold. O(deliveries held)."""
        return [
            delivery
            for transaction in self.undecided.values()
            for delivery in transaction.held
            if delivery.consumer is consumer
        ]

    def prepared(self) -> list[Transaction]:
        return [transaction for transaction in self.undecided.values() if transaction.is_prepared]

    def close(self) -> None:
        """Roll back all transactions that are not prepared."""
        for transaction in list(self.undecided.values()):
            if transaction.is_open:
                transaction.rollback_open()

    def audit(self) -> tuple[int, int]:
        """Return (charge of the transactions, charge of their deliveries in flight), computed from the live ones."""
        held = [delivery for transaction in self.undecided.values() for delivery in transaction.held]
        bodies = sum(map(content_bytes, held))
        own = sum(transaction.counted_bytes for transaction in self.undecided.values())
        own += self._parts.staging.unpublished_bytes
        return own, bodies + OVERHEAD_BYTES * len(held)
