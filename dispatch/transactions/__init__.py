"""Transactions: messages sent and acknowledged as one, all or nothing.

Read `Transaction` in `transaction.py`: taking in (`add`, `hold`), then `prepare`, `commit` and `rollback`; last
`TransactionRegistry`, which has all that are open or prepared, and finds them again after a crash.
`staged_properties.py` has what one sets of the host's properties. What lies in the journal of a transaction without an
outcome is store/transactions; docs/internals/store-transactions.md has both.
"""
