"""Host properties in RAM: small named values that the host keeps in the store, and what they may take.

The whole content is in RAM, and in the state record that opens each data log and the root of each checkpoint, so that
no other record is needed to find it again. Therefore it is bounded, and charged; the changes that transactions without
an outcome want count too, so that no commit ever finds the table full. A crash loses no change that was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from .account import Account, Unlimited
from .errors import PropertiesFull, SettingsError, StoreFull
from .format.host_properties import Changes

PROPERTIES_BYTES_MAX: Final = 1 << 20
"""Half of what a search behind damage reads of one record, which a state record with all of them must stay below."""
DATA_LOG_PARTS: Final = 4
"""The properties take at most this part of a data log, since each begins with all of them."""
PROPERTY_CHARGE_BYTES: Final = 256
"""A property beside name and value: two objects, a slot in a dict, and its growth reserve."""
NAME_CHARGE_BYTES: Final = 4
"""A character of a name in RAM, at worst."""


class PropertyTable:
    """The properties of a store. The state lock guards it."""

    def __init__(self, account: Account | None = None, limit_bytes: int = PROPERTIES_BYTES_MAX) -> None:
        """account: pays for them, once recovery is done. None: nobody counts them."""
        self._account = account or Unlimited()
        self._limit_bytes = limit_bytes
        self._values: dict[str, bytes] = {}
        self._values_bytes = 0
        self._undecided_bytes = 0
        """Of the changes that transactions without an outcome want."""
        self._charge_bytes = 0
        self.make_room: Callable[[int], object] = lambda wanted_bytes: None
        """Asks others for memory."""

    @property
    def values(self) -> Mapping[str, bytes]:
        """The properties by name, the oldest name first; only for as long as the lock is held."""
        return self._values

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that they take, with the changes that transactions without an outcome want."""
        return self._values_bytes + self._undecided_bytes

    # ------------------------------------------------------------------ changes

    def reserve(self, changes: Changes) -> None:
        """Pay for changes that are about to be written. PropertiesFull, or StoreFull where memory_limit has no room.

        Call `apply` next, or `cancel` where they could not be written. What only deletes is never refused.
        """
        replaced = sum(_charge(name, self._values[name]) for name in changes if name in self._values)
        added = sum(_charge(name, value) for name, value in changes.items() if value is not None)
        self._pay(added - replaced)

    def cancel(self) -> None:
        """Give back what was reserved for changes that could not be written."""
        self._release_surplus()

    def apply(self, changes: Changes) -> None:
        """Let changes count, which are written. Again changes nothing."""
        for name, value in changes.items():
            replaced = self._values.pop(name, None) if value is None else self._values.get(name)
            if replaced is not None:
                self._values_bytes -= _charge(name, replaced)
            if value is not None:
                self._values[name] = value
                self._values_bytes += _charge(name, value)
        self._release_surplus()

    # ------------------------------------------------------------------ transactions

    def stage(self, undecided: dict[str, bytes | None], changes: Changes) -> None:
        """Add changes to those that a transaction wants, and pay for them. Refused as in `reserve`, then none is."""
        more = sum(_charge(name, value) for name, value in changes.items())
        more -= sum(_charge(name, undecided[name]) for name in changes if name in undecided)
        self._pay(more)
        undecided.update(changes)
        self._undecided_bytes += more
        self._release_surplus()

    def hold(self, undecided: Changes) -> None:
        """Count the changes of a transaction that recovery has found."""
        self._undecided_bytes += _charge_all(undecided)

    def let_go(self, undecided: Changes) -> None:
        """Forget the changes of a transaction that has an outcome, after `apply` where it is committed."""
        self._undecided_bytes -= _charge_all(undecided)
        self._release_surplus()

    # ------------------------------------------------------------------ the journal's state

    def describe(self) -> dict[str, bytes]:
        """Return all that the journal must tell. O(properties)."""
        return dict(self._values)

    def restore(self, values: Mapping[str, bytes]) -> None:
        """Replace all properties by these."""
        self._values = dict(values)
        self._values_bytes = _charge_all(values)

    def clear(self) -> None:
        """Forget everything, as before a full replay."""
        self.restore({})
        self._undecided_bytes = 0

    def charge(self) -> None:
        """Pay for what recovery has found. SettingsError where memory_limit has no room for it."""
        if self.held_bytes and not self._account.reserve(self.held_bytes):
            raise SettingsError(f"memory_limit has no room for the {self.held_bytes} bytes of properties: raise it")
        self._charge_bytes = self.held_bytes

    # ------------------------------------------------------------------ memory

    def _pay(self, more_bytes: int) -> None:
        if more_bytes <= 0:
            return
        if self.held_bytes + more_bytes > self._limit_bytes:
            raise PropertiesFull(more_bytes, self._limit_bytes, self.held_bytes)
        if not self._account.reserve(more_bytes):
            self.make_room(more_bytes)
            if not self._account.reserve(more_bytes):
                raise StoreFull(more_bytes, 0, "memory_limit")
        self._charge_bytes += more_bytes

    def _release_surplus(self) -> None:
        """Give back what was paid and is not held. Before `charge` nothing was paid."""
        surplus = self._charge_bytes - self.held_bytes
        if surplus > 0:
            self._account.release(surplus)
            self._charge_bytes -= surplus

    def _check(self) -> None:
        assert self._values_bytes == _charge_all(self._values)
        assert self._charge_bytes == self.held_bytes


def _charge(name: str, value: bytes | None) -> int:
    return PROPERTY_CHARGE_BYTES + NAME_CHARGE_BYTES * len(name) + (len(value) if value is not None else 0)


def _charge_all(changes: Changes) -> int:
    return sum(_charge(name, value) for name, value in changes.items())


def limit_bytes_of(data_log_bytes: int) -> int:
    """Return the bytes that properties may take where data logs are that large."""
    return min(PROPERTIES_BYTES_MAX, data_log_bytes // DATA_LOG_PARTS)
