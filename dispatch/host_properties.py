"""Properties: small named values that the host keeps in the store, as a MutableMapping.

A reader gets copies, so nothing changes during an iteration. A change is one record in the journal, decided and written
under the state lock. After a crash it is there as a whole or not at all, and no thread sees a part of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from typing import Any, Final, TypeVar, overload

from ..store.errors import ArgumentError, SettingsError, argument_error
from ..store.format.host_properties import PROPERTY_NAME_BYTES_MAX, Changes
from ..store.format.retained import RESERVED_PREFIX
from ..store.state.property_table import PropertyTable
from ..store.writers.property_writer import PropertyWriter
from .core.confirmer import Confirmer
from .core.monitor import Monitor

T = TypeVar("T")

Decide = Callable[[Mapping[str, bytes]], Changes]
"""Gets all properties, which it must not keep, and returns the changes to make."""

_MISSING: Final = object()


class PropertySource(ABC):
    """The place where properties are read and changed: the store, or a transaction."""

    @abstractmethod
    def find(self, name: str) -> bytes | None:
        """Return a property, or None if there is none of that name."""

    @abstractmethod
    def snapshot(self) -> dict[str, bytes]:
        """Return a copy of all properties."""

    @abstractmethod
    def change(self, decide: Decide) -> None:
        """Make the changes that `decide` returns, all of them or none."""


class StoreProperties(PropertySource):
    """The properties of a store in their current state."""

    def __init__(
        self,
        monitor: Monitor,
        table: PropertyTable,
        writer: PropertyWriter,
        confirmer: Confirmer,
    ) -> None:
        self._monitor = monitor
        self._table = table
        self._writer = writer
        self._confirmer = confirmer

    def find(self, name: str) -> bytes | None:
        """Return a property of the store, or None if there is none of that name. Closed."""
        with self._monitor.lock:
            self._monitor.raise_if_closed()
            return self._table.values.get(name)

    def snapshot(self) -> dict[str, bytes]:
        """Return a copy of all properties of the store. Closed."""
        with self._monitor.lock:
            self._monitor.raise_if_closed()
            return dict(self._table.values)

    def change(self, decide: Decide) -> None:
        """Write the changes that `decide` returns as one record. It is as safe as `sync` promises when this returns."""
        with self._monitor.lock, self._monitor.while_open:
            changes = decide(self._table.values)
            if not changes:
                return
            self._writer.change(changes)
            journal_end = self._confirmer.journal_end
        self._confirmer.confirm(journal_end)


class Properties(MutableMapping[str, bytes]):
    """`Forebay.properties`, or those of a transaction: a MutableMapping of str to bytes. Thread-safe.

    Use them for small data that a host must find again: bindings, sessions, cursors. A change is one record in the
    journal, as safe as `sync` promises when it returns; `update` and `clear` are one change. A transaction sees its own
    changes at once in its `properties`; others see them after its commit.

    All properties are in RAM and count under memory_limit, so their total is bounded by a quarter of max_file_length
    and 1 MiB. Each counts as the length of its value, 4 bytes for each character of its name, and 256. PropertiesFull
    or StoreFull: nothing has changed. Iteration, `items`, `keys` and `values` take a copy. A read takes a lock.

        >>> bay.properties["cursor/eu"] = b"1042"
        >>> bay.properties["cursor/eu"]
        b'1042'
    """

    def __init__(self, source: PropertySource) -> None:
        self._source = source

    # ------------------------------------------------------------------ reading

    def __getitem__(self, name: str) -> bytes:
        value = self._source.find(name) if isinstance(name, str) else None
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._source.find(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._source.snapshot())

    def __len__(self) -> int:
        return len(self._source.snapshot())

    def keys(self) -> KeysView[str]:
        """Return the names at this moment. O(properties)."""
        return self._source.snapshot().keys()

    def values(self) -> ValuesView[bytes]:
        """Return the values at this moment. O(properties)."""
        return self._source.snapshot().values()

    def items(self) -> ItemsView[str, bytes]:
        """Return names and values at this moment. O(properties)."""
        return self._source.snapshot().items()

    # ------------------------------------------------------------------ changing

    def __setitem__(self, name: str, value: bytes) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        self.pop(name)

    def update(self, changes: Any = (), /, **named: Any) -> None:
        """Set properties with one record. After a crash all of them are there, or none."""
        try:
            given = dict(changes, **named)
        except (TypeError, ValueError):
            raise ArgumentError(f"a mapping of names to bytes is expected, not {type(changes).__name__}") from None
        checked = {check_property_name(name): _checked_value(value) for name, value in given.items()}
        self._source.change(lambda known: checked)

    @overload
    def pop(self, name: str, /) -> bytes: ...

    @overload
    def pop(self, name: str, /, default: bytes) -> bytes: ...

    @overload
    def pop(self, name: str, /, default: T) -> bytes | T: ...

    def pop(self, name: str, /, default: object = _MISSING) -> object:
        """Delete a property and return its value.

        If there is none, return the default, or raise KeyError without one.
        """
        popped = default

        def take(known: Mapping[str, bytes]) -> Changes:
            nonlocal popped
            popped = known.get(name, default)
            return {name: None} if name in known else {}

        if isinstance(name, str):
            self._source.change(take)
        if popped is _MISSING:
            raise KeyError(name)
        return popped

    def popitem(self) -> tuple[str, bytes]:
        """Delete the newest property and return its name and value. KeyError if there are no properties."""
        popped: list[tuple[str, bytes]] = []

        def take(known: Mapping[str, bytes]) -> Changes:
            popped.extend((name, known[name]) for name in list(known)[-1:])
            return {name: None for name, _ in popped}

        self._source.change(take)
        if not popped:
            raise KeyError("there are no properties")
        return popped[0]

    def setdefault(self, name: str, default: Any = None, /) -> Any:
        """Return a property; if there is none of that name, set it to the default first."""
        check_property_name(name)
        value = default

        def take(known: Mapping[str, bytes]) -> Changes:
            nonlocal value
            value = known[name] if name in known else _checked_value(default)
            return {} if name in known else {name: value}

        self._source.change(take)
        return value

    def clear(self) -> None:
        """Delete all properties with one record."""
        self._source.change(dict.fromkeys)

    def __repr__(self) -> str:
        return "<Properties>"


def check_property_name(name: object) -> str:
    """Return a name if a property can have it: at most 1,024 bytes of UTF-8, and no zero byte at the beginning.

    Raise SettingsError for any other name.
    """
    if not isinstance(name, str) or not name:
        raise argument_error(f"a property's name must be a non-empty str, not {name!r}", name, str)
    if name.startswith(RESERVED_PREFIX):
        raise SettingsError("a property's name must not begin with a zero byte: such names are the store's own")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise SettingsError("a property's name holds half a surrogate pair: it is not text") from None
    if size > PROPERTY_NAME_BYTES_MAX:
        raise SettingsError(f"a property's name of {size} bytes is above {PROPERTY_NAME_BYTES_MAX}: shorten it")
    return name


def _checked_value(value: object) -> bytes:
    if type(value) is bytes:
        return value
    try:
        return bytes(memoryview(value))  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentError(f"a property must be bytes, not {type(value).__name__}: encode it first") from None
