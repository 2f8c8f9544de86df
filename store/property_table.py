"""Host properties in RAM: small named values that the host keeps in the store, and what they may take.

The whole content is in RAM, and in the state record that opens each data log and the root of each checkpoint, so that
no other record is needed to find it again. Therefore it is bounded, and charged; the changes that transactions without
an outcome want count too, so that no commit ever finds the table full. A crash loses no change that was written.

The retained messages of topics are kept here too, under names that the host can't have, and never among its values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from .account import Account, Unlimited
from .errors import PropertiesFull, SettingsError, StoreFull
from .format.host_properties import PROPERTY_NAME_BYTES_MAX, Changes
from .format.retained import RESERVED_PREFIX, retaining_topic

PROPERTIES_BYTES_MAX: Final = 1 << 20
"""Half of what a search behind damage reads of one record, which a state record with all of them must stay below."""
DATA_LOG_PARTS: Final = 4
"""The properties take at most this part of a data log, since each begins with all of them."""
PROPERTY_CHARGE_BYTES: Final = 256
"""A property beside name and value: two objects, a slot in a dict, and its growth reserve."""
RETAINED_CHARGE_BYTES: Final = 320
"""A retained message beside name and value: its topic may have no other, and then a dict for this one alone."""
NAME_CHARGE_BYTES: Final = 4
"""A character of a name in RAM, at worst."""
DELETIONS_BYTES: Final = RETAINED_CHARGE_BYTES + NAME_CHARGE_BYTES * PROPERTY_NAME_BYTES_MAX
DELETIONS_PART: Final = 8
"""Transactions may delete with so much above the limit, and this part of it: at least one property of any name."""


class PropertyTable:
    """The properties of a store. The state lock guards it."""

    def __init__(
        self,
        account: Account | None = None,
        limit_bytes: int = PROPERTIES_BYTES_MAX,
        make_room: Callable[[int], object] = lambda wanted_bytes: None,
    ) -> None:
        """account: pays for them, once recovery is done. None: nobody counts them.

        make_room: asks others for memory.
        """
        self._make_room = make_room
        self._account = account or Unlimited()
        self._limit_bytes = limit_bytes
        self._values: dict[str, bytes] = {}
        self._retained: dict[int, dict[str, bytes]] = {}
        """The store's own: by topic the messages that it retains, in the order of sending."""
        self._values_bytes = 0
        """The bytes of both tables."""
        self._undecided_bytes = 0
        """The bytes of changes that transactions without an outcome want."""
        self._charge_bytes = 0

    @property
    def values(self) -> Mapping[str, bytes]:
        """The host's properties by name, the oldest name first; only for as long as the lock is held."""
        return self._values

    def retained(self, topic: int) -> Collection[bytes]:
        """Return the retained messages of a topic, as they are encoded, the one sent last at the end.

        Only for as long as the lock is held.
        """
        return self._retained.get(topic, {}).values()

    def is_retained(self, name: str) -> bool:
        """Return whether there is a retained message of that name."""
        return name in self._retained.get(retaining_topic(name), ())

    def all_retained(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and bytes of every retained message. Only for as long as the lock is held."""
        for kept in self._retained.values():
            yield from kept.items()

    def forget_retained(self, topic: int) -> None:
        """Forget the retained messages of a topic: the record that deletes the topic stands for them."""
        self.apply(dict.fromkeys(self._retained.get(topic, ())))

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that they take, with the changes that transactions without an outcome want."""
        return self._values_bytes + self._undecided_bytes

    # ------------------------------------------------------------------ changes

    def reserve(self, changes: Changes) -> None:
        """Pay for changes that are about to be written. PropertiesFull, or StoreFull where memory_limit has no room.

        Call `apply` next, or `cancel` where they could not be written. What only deletes is never refused.
        """
        known = ((name, self._find(name)) for name in changes)
        replaced = sum(_charge(name, value) for name, value in known if value is not None)
        added = sum(_charge(name, value) for name, value in changes.items() if value is not None)
        self._pay(added - replaced)

    def cancel(self) -> None:
        """Give back what was reserved for changes that could not be written."""
        self._release_surplus()

    def apply(self, changes: Changes) -> None:
        """Let changes count, which are written. Again changes nothing."""
        for name, value in changes.items():
            replaced = self._replace(name, value)
            if replaced is not None:
                self._values_bytes -= _charge(name, replaced)
            if value is not None:
                self._values_bytes += _charge(name, value)
        self._release_surplus()

    def _find(self, name: str) -> bytes | None:
        if name.startswith(RESERVED_PREFIX):
            return self._retained.get(retaining_topic(name), {}).get(name)
        return self._values.get(name)

    def _replace(self, name: str, value: bytes | None) -> bytes | None:
        """Set a value, or delete it; return the one before."""
        if not name.startswith(RESERVED_PREFIX):
            replaced = self._values.pop(name, None) if value is None else self._values.get(name)
            if value is not None:
                self._values[name] = value
            return replaced
        topic = retaining_topic(name)
        kept = self._retained.setdefault(topic, {})
        replaced = kept.pop(name, None)
        if value is not None:
            kept[name] = value  # behind the others, as the one sent last
        elif not kept:
            del self._retained[topic]
        return replaced

    # ------------------------------------------------------------------ transactions

    def stage(self, undecided: dict[str, bytes | None], changes: Changes) -> None:
        """Add changes to those that a transaction wants, and pay for them. Refused as in `reserve`, then none is.

        What only deletes has a little more room: a full table can be emptied by transactions too.
        """
        more = sum(_charge(name, value) for name, value in changes.items())
        more -= sum(_charge(name, undecided[name]) for name in changes if name in undecided)
        only_deletes = all(value is None for value in changes.values())
        self._pay(more, DELETIONS_BYTES + self._limit_bytes // DELETIONS_PART if only_deletes else 0)
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
        return {**self._values, **dict(self.all_retained())}

    def restore(self, values: Mapping[str, bytes]) -> None:
        """Replace all properties by these."""
        self._values, self._retained = {}, {}
        for name, value in values.items():
            self._replace(name, value)
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

    def _pay(self, more_bytes: int, above_bytes: int = 0) -> None:
        """above_bytes: above the limit, and there all the same."""
        if more_bytes <= 0:
            return
        if self.held_bytes + more_bytes > self._limit_bytes + above_bytes:
            raise PropertiesFull(more_bytes, self._limit_bytes, self.held_bytes)
        if not self._account.reserve(more_bytes):
            self._make_room(more_bytes)
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
        assert self._values_bytes == _charge_all(self.describe()) and all(self._retained.values())
        assert self._charge_bytes == self.held_bytes


def _charge(name: str, value: bytes | None) -> int:
    own_bytes = RETAINED_CHARGE_BYTES if name.startswith(RESERVED_PREFIX) else PROPERTY_CHARGE_BYTES
    return own_bytes + NAME_CHARGE_BYTES * len(name) + (len(value) if value is not None else 0)


def _charge_all(changes: Changes) -> int:
    return sum(_charge(name, value) for name, value in changes.items())


def limit_bytes_of(data_log_bytes: int) -> int:
    """Return the bytes that properties may take where data logs are that large."""
    return min(PROPERTIES_BYTES_MAX, data_log_bytes // DATA_LOG_PARTS)
