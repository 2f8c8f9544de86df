"""The ledger: what a message costs, the budget that admits or refuses it, and charges that cannot be refused."""
