"""AsyncTransaction: a transaction in an event loop."""

from __future__ import annotations

from typing import Any

from ..host_properties import Properties
from ..transactions.transaction import Transaction
from .awaiting import asynchronous
from .loop import LoopConfirmer


@asynchronous("a transaction of forebay.aio", block="async with bay.transaction() as transaction:")
class AsyncTransaction:
    """Made by `Forebay.transaction`, or found by `Forebay.prepared`. Belongs to its loop.

    An async context manager, as Transaction is one for threads. Its outcome
    is written by a worker thread: a call that is cancelled meanwhile happens
    all the same. A block that is cancelled is rolled back.
    """

    def __init__(self, caller: LoopConfirmer, transaction: Transaction) -> None:
        self._caller = caller
        self._transaction = transaction

    @property
    def xid(self) -> bytes | None:
        """The name that it was prepared under."""
        return self._transaction.xid

    @property
    def is_open(self) -> bool:
        return self._transaction.is_open

    @property
    def is_prepared(self) -> bool:
        return self._transaction.is_prepared

    @property
    def properties(self) -> Properties:
        """Return what it sets with its commit. Nothing is written before, so nothing is awaited."""
        return self._transaction.properties

    async def commit(self) -> None:
        """Make all of it count from now on; as safe as `sync` promises when this returns. As Transaction.commit."""
        await self._caller.call(self._transaction.commit)

    async def rollback(self) -> None:
        """Undo all of it: what it sent is gone, what it acknowledged goes back to its place."""
        await self._caller.call(self._transaction.rollback)

    async def prepare(self, xid: bytes) -> None:
        """Make it survive whatever comes, until somebody commits it or rolls it back. As Transaction.prepare."""
        await self._caller.call(self._transaction.prepare, xid)

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        await self._caller.call(self._transaction.__exit__, kind, *rest)

    def __repr__(self) -> str:
        return repr(self._transaction)


def inner_transaction(transaction: AsyncTransaction | None) -> Any:
    """Return the inner transaction; anything else the store refuses itself."""
    return transaction._transaction if isinstance(transaction, AsyncTransaction) else transaction
