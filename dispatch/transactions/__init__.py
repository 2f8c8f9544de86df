"""Transactions and prepared branches."""
