"""The ledger: what a message costs, the budget that admits it, charges that cannot be refused, and the shares."""
