"""Transactions: messages sent and acknowledged as one, all or nothing.

Read `Transaction` in `transaction.py`: taking in (`add`, `hold`), then `prepare`, `commit` and `rollback`; last
`TransactionRegistry`, which has all that are open or prepared, and finds them again after a crash.

What waits for the outcome has an owner for each kind: staged_slices.py for persistent messages, for the others
staged_non_persistent.py, staged_acks.py for deliveries, staged_properties.py for what is set of the host.
transaction_memory.py charges for it. What lies in the journal of a transaction without an outcome is
store/transactions.py; docs/internals/store-transactions.md has both.
"""
