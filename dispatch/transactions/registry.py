"""TransactionRegistry: all transactions that have no outcome yet, and the memory they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...cache.budget import Holder
from ...cache.charge import OVERHEAD_BYTES
from ...store.errors import SettingsError, StoreFull, TransactionError
from ...store.format.branch import Branch
from ...store.sequence_set import SequenceSet
from ..core.delivery import Delivery
from .transaction import (
    BRANCH_CHARGE_BYTES,
    GATHERED_CHARGE_BYTES,
    HELD_CHARGE_BYTES,
    IDENTITY_CHARGE_BYTES,
    SLICE_CHARGE_BYTES,
    Transaction,
)

if TYPE_CHECKING:
    from ..engine.engine import Engine

ROOM_BYTES: Final = 1 << 16
"""The caches are asked for so much at a time."""


class TransactionRegistry:
    """The state lock guards it; every method but `begin` requires it held."""

    def __init__(self, engine: Engine, holder: Holder) -> None:
        self._engine = engine
        self.holder = holder
        self.undecided: dict[int, Transaction] = {}
        """By number, in the order in which they were begun."""

    def begin(self) -> Transaction:
        """A new one. StoreFull when memory_limit has no room for another."""
        engine = self._engine
        with engine.lock:
            engine.raise_closed()
            self.charge(BRANCH_CHARGE_BYTES)
            return self._add(engine.store.transactions.begin())

    def _add(self, branch: Branch) -> Transaction:
        transaction = self.undecided[branch.number] = Transaction(self._engine, branch)
        return transaction

    def recover(self) -> None:
        """Take up the branches that survived; what they acknowledged is delivered to nobody until their outcome.

        SettingsError when memory_limit is smaller than they need.
        """
        engine = self._engine
        for branch in engine.store.branches.prepared:
            transaction = self._add(branch)
            charge = transaction.charge_bytes
            if not self.holder.reserve(charge):
                raise SettingsError(
                    f"memory_limit has no room for the {charge} bytes of a prepared transaction: raise it"
                )
            for lane, first, messages in branch.runs():
                engine.lane_area(lane).parked.update(range(first, first + messages))

    def reserve(self, charge_bytes: int) -> bool:
        """From what the caches have if need be: a larger slice costs less than many small ones."""
        if self.holder.reserve(charge_bytes):
            return True
        self._engine.targets.make_room(max(charge_bytes, ROOM_BYTES), None)
        return self.holder.reserve(charge_bytes)

    def charge(self, charge_bytes: int) -> None:
        """As reserve, or StoreFull. Also while the limit falls: what is in flight may end with a transaction."""
        if not self.reserve(charge_bytes) and not self.holder.reserve_last(charge_bytes):
            raise StoreFull(charge_bytes, max(self._engine.targets.budget.free_bytes, 0), "memory_limit")

    def checked(self, transaction: object) -> Transaction:
        """What a call was given as its transaction. TransactionError. The lock may be free."""
        if type(transaction) is not Transaction:
            raise TransactionError(f"a transaction is expected, not {type(transaction).__name__}")
        if transaction._engine is not self._engine:
            raise TransactionError("the transaction belongs to another store")
        return transaction

    def acknowledged_in(self, lane: int) -> SequenceSet:
        """Sequences of a lane that a transaction decides about."""
        found = SequenceSet()
        for transaction in self.undecided.values():
            for first, last in transaction._branch.acks.get(lane, ()):
                found.add(first, last)
        return found

    def concern(self, destination: int) -> bool:
        """Whether one without an outcome sent there, or acknowledged there. O(slices)."""
        return any(transaction.concerns(destination) for transaction in self.undecided.values())

    def raise_if_held(self, delivery: Delivery) -> None:
        """TransactionError when the message was acknowledged in a transaction."""
        if any(transaction.holds(delivery) for transaction in self.undecided.values()):
            raise TransactionError("the message was acknowledged in a transaction, which decides about it")

    def prepared(self) -> list[Transaction]:
        return [transaction for transaction in self.undecided.values() if transaction.is_prepared]

    def close(self) -> None:
        """Roll back all that are not prepared."""
        for transaction in list(self.undecided.values()):
            if transaction.is_open:
                transaction.rollback_open()

    def audit(self) -> tuple[int, int]:
        """(charge of the transactions, charge of the deliveries that are in flight with them), from the live ones."""
        held = [delivery for transaction in self.undecided.values() for delivery in transaction.held]
        bodies = sum(len(delivery._properties) + len(delivery._body) for delivery in held if delivery._body is not None)
        own = 0
        for transaction in self.undecided.values():
            gathered = sum(len(properties) + len(body) for properties, body in transaction.gathered)
            own += gathered + GATHERED_CHARGE_BYTES * len(transaction.gathered)
            branch = transaction._branch
            own += BRANCH_CHARGE_BYTES + SLICE_CHARGE_BYTES * len(branch) + HELD_CHARGE_BYTES * branch.acknowledged
            own += IDENTITY_CHARGE_BYTES * len(branch.identities)
        return own, bodies + OVERHEAD_BYTES * len(held)
