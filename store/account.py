"""The account through which the store asks for memory. The budget of the cache implements it."""

from __future__ import annotations

from typing import Protocol


class Account(Protocol):
    """A named holder in the ledger of charges. The owner's lock guards it."""

    def reserve(self, charge_bytes: int) -> bool:
        """Charge that many bytes, or say False and charge nothing. Call before the memory is taken."""

    def release(self, charge_bytes: int) -> None:
        """Give back what was reserved."""


class Unlimited:
    """An account that admits everything and counts it: for a store without a cache above it."""

    def __init__(self) -> None:
        self.held_bytes = 0

    def reserve(self, charge_bytes: int) -> bool:
        self.held_bytes += charge_bytes
        return True

    def release(self, charge_bytes: int) -> None:
        self.held_bytes -= charge_bytes
        assert self.held_bytes >= 0
