"""Refusal: while the index has no room for more messages, none is added; only with persistent_index=False.

Dead letters are: each takes the place of another message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import StoreFull
from .transactions import Transactions

if TYPE_CHECKING:
    from .message_store import MessageStore


class Refusal:
    """It stands in the place of the store's methods, so that while there is room no message pays for the question.

    The state lock guards it.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.is_refusing = False

    def admit(self, are_admitted: bool) -> None:
        """Refuse messages, or no longer. REQUIRES: state lock."""
        store = self._store
        if self.is_refusing and are_admitted:
            del store.add, store.add_slice, store.timetable.add, store.transactions.add_slice
        elif not (self.is_refusing or are_admitted):
            store.add = store.add_slice = store.timetable.add = _refuse  # type: ignore[method-assign]
            store.transactions.add_slice = self._add_slice  # type: ignore[method-assign]
        self.is_refusing = not are_admitted

    def _add_slice(self, *given: Any, **named: Any) -> Any:
        if not self._store.journal.is_burying:
            _refuse()
        return Transactions.add_slice(self._store.transactions, *given, **named)


def _refuse(*_: Any, **__: Any) -> Any:
    raise StoreFull(1, 0, "the share of memory_limit that the index may take with persistent_index=False")
