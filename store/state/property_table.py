"""PropertyTable: the host properties, which are small named values, in RAM, and the bound on their size.

All properties are in RAM, in the state record that opens each data log, and in the root of each checkpoint. So no other
record is needed to restore them, and the table is bounded and charged. Changes that transactions without an outcome
have staged count too, so a commit never finds the table full. A crash loses no change that was written.

The table also has the retained messages of topics, under names that the host can't use. They never appear among the
host's values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from ..environment.account import Account, Unlimited
from ..errors import PropertiesFull, SettingsError, StoreFull
from ..format.host_properties import PROPERTY_NAME_BYTES_MAX, Changes
from ..format.retained import RESERVED_PREFIX, retaining_topic

PROPERTIES_BYTES_MAX: Final = 1 << 20
"""Half of what a search behind damage reads of one record. A state record with all properties must stay below it."""
DATA_LOG_PARTS: Final = 4
"""Properties take at most this part of a data log, because each data log begins with all of them."""
PROPERTY_CHARGE_BYTES: Final = 256
"""Charged for a property in addition to name and value: two objects, a slot in a dict, and its growth reserve."""
RETAINED_CHARGE_BYTES: Final = 320
"""Charged for a retained message in addition to name and value: it may be the only one in the dict of its topic."""
NAME_CHARGE_BYTES: Final = 4
"""Charged for a character of a name. No character takes more RAM."""
DELETIONS_BYTES: Final = RETAINED_CHARGE_BYTES + NAME_CHARGE_BYTES * PROPERTY_NAME_BYTES_MAX
DELETIONS_PART: Final = 8
"""A transaction that deletes may exceed the limit by this part of it. So it can delete a property of any name."""


class PropertyTable:
    """The properties of a store. The state lock guards it."""

    def __init__(
        self,
        account: Account | None = None,
        limit_bytes: int = PROPERTIES_BYTES_MAX,
        make_room: Callable[[int], object] = lambda wanted_bytes: None,
    ) -> None:
        """Make an empty table.

        account: pays for the properties once recovery is done; None: they are not counted.
        make_room: asks other holders to free that many bytes of memory.
        """
        self._make_room = make_room
        self._account = account or Unlimited()
        self._limit_bytes = limit_bytes
        self._values: dict[str, bytes] = {}
        # Retained messages by topic, in the order of sending.
        self._retained: dict[int, dict[str, bytes]] = {}
        # Bytes of the host's properties and of the retained messages.
        self._values_bytes = 0
        # Bytes of changes that transactions without an outcome have staged.
        self._undecided_bytes = 0
        self._charge_bytes = 0

    @property
    def values(self) -> Mapping[str, bytes]:
        """The host's properties by name, oldest first. Valid only while the lock is held."""
        return self._values

    def retained(self, topic: int) -> Collection[bytes]:
        """Return the encoded retained messages of a topic; the one sent last is at the end.

        Valid only while the lock is held.
        """
        return self._retained.get(topic, {}).values()

    def is_retained(self, name: str) -> bool:
        """Return whether a retained message has this name."""
        return name in self._retained.get(retaining_topic(name), ())

    def all_retained(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and bytes of every retained message. Valid only while the lock is held."""
        for kept in self._retained.values():
            yield from kept.items()

    def forget_retained(self, topic: int) -> None:
        """Forget the retained messages of a topic. The record that deletes the topic covers them."""
        self.apply(dict.fromkeys(self._retained.get(topic, ())))

    @property
    def held_bytes(self) -> int:
        """Bytes of all properties, including staged changes of transactions without an outcome."""
        return self._values_bytes + self._undecided_bytes

    # ------------------------------------------------------------------ changes

    def reserve(self, changes: Changes) -> None:
        """Pay for changes that are about to be written. PropertiesFull; StoreFull if memory_limit has no room.

        Then call `apply`, or `cancel` if they could not be written. Deletions are never refused.
        """
        known = ((name, self._find(name)) for name in changes)
        replaced = sum(_charge(name, value) for name, value in known if value is not None)
        added = sum(_charge(name, value) for name, value in changes.items() if value is not None)
        self._pay(added - replaced)

    def cancel(self) -> None:
        """Release the reservation of changes that could not be written."""
        self._release_surplus()

    def apply(self, changes: Changes) -> None:
        """Make written changes take effect. A second call changes nothing."""
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
        """Set or delete a value; return the previous one."""
        if not name.startswith(RESERVED_PREFIX):
            replaced = self._values.pop(name, None) if value is None else self._values.get(name)
            if value is not None:
                self._values[name] = value
            return replaced
        topic = retaining_topic(name)
        kept = self._retained.setdefault(topic, {})
        replaced = kept.pop(name, None)
        if value is not None:
            kept[name] = value  # behind the others, because it was sent last
        elif not kept:
            del self._retained[topic]
        return replaced

    # ------------------------------------------------------------------ transactions

    def stage(self, undecided: dict[str, bytes | None], changes: Changes) -> None:
        """Add changes to those that a transaction has staged, and pay for them.

        Refused as in `reserve`; nothing has changed then.

        Deletions may exceed the limit a little, so that a transaction can empty a full table.
        """
        more = sum(_charge(name, value) for name, value in changes.items())
        more -= sum(_charge(name, undecided[name]) for name in changes if name in undecided)
        only_deletes = all(value is None for value in changes.values())
        self._pay(more, DELETIONS_BYTES + self._limit_bytes // DELETIONS_PART if only_deletes else 0)
        undecided.update(changes)
        self._undecided_bytes += more
        self._release_surplus()

    def hold_undecided(self, undecided: Changes) -> None:
        """Count the staged changes of a transaction that recovery has found."""
        self._undecided_bytes += _charge_all(undecided)

    def release_undecided(self, undecided: Changes) -> None:
        """Forget the staged changes of a transaction with an outcome. If it is committed, call `apply` first."""
        self._undecided_bytes -= _charge_all(undecided)
        self._release_surplus()

    # ------------------------------------------------------------------ the journal's state

    def describe(self) -> dict[str, bytes]:
        """Return all values that the journal must have. O(properties)."""
        return {**self._values, **dict(self.all_retained())}

    def restore(self, values: Mapping[str, bytes]) -> None:
        """Replace all properties."""
        self._values, self._retained = {}, {}
        for name, value in values.items():
            self._replace(name, value)
        self._values_bytes = _charge_all(values)

    def clear(self) -> None:
        """Forget everything, before a full replay."""
        self.restore({})
        self._undecided_bytes = 0

    def charge(self) -> None:
        """Pay for the properties that recovery has found. SettingsError: memory_limit has no room for them."""
        if self.held_bytes and not self._account.reserve(self.held_bytes):
            raise SettingsError(f"memory_limit has no room for the {self.held_bytes} bytes of properties: raise it")
        self._charge_bytes = self.held_bytes

    # ------------------------------------------------------------------ memory

    def _pay(self, more_bytes: int, above_bytes: int = 0) -> None:
        """Pay for more bytes. above_bytes: how far they may exceed the limit. PropertiesFull, StoreFull."""
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
        """Release what is paid and not held. Nothing is paid before `charge`."""
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
    """Return the limit of the properties' bytes for data logs of this size."""
    return min(PROPERTIES_BYTES_MAX, data_log_bytes // DATA_LOG_PARTS)
