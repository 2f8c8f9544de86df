"""The accounts through which the store asks for memory. The budget of the cache implements them."""

from __future__ import annotations

from typing import Protocol


class Account(Protocol):
    """A named holder of memory in the ledger of charges. The owner's lock guards it."""

    def reserve(self, charge_bytes: int) -> bool:
        """Charge that many bytes, or return False and charge nothing. Call it before the memory is taken."""

    def release(self, charge_bytes: int) -> None:
        """Release what was reserved."""


class OverdraftAccount(Protocol):
    """An account for memory that can't be refused, such as the bookkeeping of an ack. The owner's lock guards it."""

    def charge(self, charge_bytes: int) -> None:
        """Charge that many bytes now, or as soon as there is room."""

    def release(self, charge_bytes: int) -> None:
        """Release what was charged."""


class Uncounted:
    """An open account that counts nothing.

    It is for memory that is freed when the call ends, and for a store in whose StoreAccounts nobody pays.
    """

    def charge(self, charge_bytes: int) -> None:
        """Do nothing."""

    def release(self, charge_bytes: int) -> None:
        """Do nothing."""


class Unlimited:
    """An account that admits and counts everything, for a store without a cache above it."""

    def __init__(self) -> None:
        self.held_bytes = 0

    def reserve(self, charge_bytes: int) -> bool:
        self.held_bytes += charge_bytes
        return True

    def charge(self, charge_bytes: int) -> None:
        self.held_bytes += charge_bytes

    def release(self, charge_bytes: int) -> None:
        self.held_bytes -= charge_bytes
        assert self.held_bytes >= 0
