"""Transactions: messages sent and acknowledged as one, all or nothing.

Read `Transaction` in `transaction.py`: first how it takes messages in (`add`, `hold`), then `prepare`, `commit` and
`rollback`. Read `TransactionRegistry` in `transaction_registry.py` last: it has all open and prepared transactions, and
after a crash it finds the prepared ones again.

Each kind of staged content has its own module: staged_slices.py for persistent messages, staged_non_persistent.py for
non-persistent ones, staged_acks.py for deliveries, staged_properties.py for host properties. transaction_memory.py
charges for them. store/state/branches.py has the part of an undecided transaction that lies in the journal;
docs/internals/store-transactions.md describes both.
"""
