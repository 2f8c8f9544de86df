"""AsyncTransaction: a transaction in an event loop."""

from __future__ import annotations

from typing import Any

from ..host_properties import Properties
from ..transactions.transaction import Transaction
from .awaiting import asynchronous
from .loop import LoopConfirmer


@asynchronous("a transaction of forebay.aio", block="async with bay.transaction() as transaction:")
class AsyncTransaction:
    """A transaction, made by `Forebay.transaction` or found by `Forebay.prepared`. It belongs to its loop.

    An async context manager, like Transaction for threads. A worker thread writes its outcome, so a cancelled call
    still happens. If the block is cancelled, the transaction is rolled back.
    """

    def __init__(self, caller: LoopConfirmer, transaction: Transaction) -> None:
        self._caller = caller
        self._transaction = transaction

    @property
    def xid(self) -> bytes | None:
        """The name under which it was prepared."""
        return self._transaction.xid

    @property
    def is_open(self) -> bool:
        return self._transaction.is_open

    @property
    def is_prepared(self) -> bool:
        return self._transaction.is_prepared

    @property
    def properties(self) -> Properties:
        """The properties as its commit would leave them. Nothing is written before that, so nothing is awaited."""
        return self._transaction.properties

    async def commit(self) -> None:
        """Make all of it take effect now; it is as safe as `sync` promises when this returns. As Transaction.commit."""
        await self._caller.call(self._transaction.commit)

    async def rollback(self) -> None:
        """Undo all of it: sent messages are deleted, and acknowledged ones go back to their places."""
        await self._caller.call(self._transaction.rollback)

    async def prepare(self, xid: bytes) -> None:
        """Make it survive a crash, until somebody commits it or rolls it back. As Transaction.prepare."""
        await self._caller.call(self._transaction.prepare, xid)

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        await self._caller.call(self._transaction.__exit__, kind, *rest)

    def __repr__(self) -> str:
        return repr(self._transaction)


def inner_transaction(transaction: AsyncTransaction | None) -> Any:
    """Return the inner transaction; the store refuses anything else itself."""
    return transaction._transaction if isinstance(transaction, AsyncTransaction) else transaction
