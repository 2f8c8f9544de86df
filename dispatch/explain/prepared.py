"""Explains what a prepared transaction decides about, as data and in one sentence."""

from __future__ import annotations

from ...store.errors import SettingsError
from ..engine.explained_store import ExplainedStore
from .cause import Cause, Explanation
from .reasons import TRANSACTION
from .texts import plural


def explain_prepared(store: ExplainedStore, xid: bytes) -> Explanation:
    """Explain what the prepared transaction of an xid decides about.

    Requires: the lock is not held. SettingsError: there is no such transaction.
    """
    monitor = store.monitor
    monitor.raise_if_closed()
    with monitor.lock, monitor.all_or_broken:
        transaction = next((each for each in store.transactions.prepared() if each.xid == xid), None)
        concerned = transaction.messages_by_destination() if transaction is not None else {}
    if transaction is None:
        raise SettingsError(f"there is no prepared transaction {xid[:100]!r}: Forebay.prepared lists those there are")
    frees = f"the commit or the rollback of transaction {transaction.name}"
    causes: list[Cause] = []
    said: list[str] = []
    for destination, (sent, acknowledged) in concerned.items():
        name = destination.qualified_name
        for count, words in ((sent, f"sent to {name}"), (acknowledged, f"of {name} acknowledged")):
            if count:
                causes.append(Cause(TRANSACTION, name, count, 0, None, frees))
                said.append(f"{count:,} message{plural(count)} {words}")
    what = " and ".join(said) if said else "no messages"
    sentence = f"Transaction {transaction.name} is prepared and waits for its outcome, with {what}."
    return Explanation(sentence, tuple(causes))
