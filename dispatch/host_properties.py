"""Properties: small named values that the host keeps in the store, as a MutableMapping.

Whoever reads gets copies, so nothing changes under an iteration. A change is
one record of the journal, and is decided and written under the state lock: a
crash, or another thread, leaves it whole or not made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from typing import Any, Final, TypeVar, overload

from ..store.errors import ArgumentError, SettingsError, argument_error
from ..store.format.host_properties import PROPERTY_NAME_BYTES_MAX, Changes
from ..store.format.retained import RESERVED_PREFIX
from ..store.journal.journal import Journal
from ..store.property_records import PropertyRecords
from ..store.property_table import PropertyTable
from .core.confirmer import Confirmer
from .core.monitor import Monitor

T = TypeVar("T")

Decide = Callable[[Mapping[str, bytes]], Changes]
"""Given what there is, which must not be kept, returns what to change."""

_MISSING: Final = object()


class PropertySource(ABC):
    """Where properties are read and changed: in the store, or in a transaction."""

    @abstractmethod
    def find(self, name: str) -> bytes | None:
        """Return a property; None: there is none of that name."""

    @abstractmethod
    def snapshot(self) -> dict[str, bytes]:
        """Return a copy of all properties."""

    @abstractmethod
    def change(self, decide: Decide) -> None:
        """Make the changes that `decide` wants, all of them or none."""


class StoreProperties(PropertySource):
    """The properties of a store, as they count now."""

    def __init__(
        self,
        monitor: Monitor,
        table: PropertyTable,
        records: PropertyRecords,
        journal: Journal,
        confirmer: Confirmer,
    ) -> None:
        self._monitor = monitor
        self._table = table
        self._records = records
        self._journal = journal
        self._confirmer = confirmer

    def find(self, name: str) -> bytes | None:
        """Return a property of the store; None: there is none of that name. Closed."""
        with self._monitor.lock:
            self._monitor.raise_if_closed()
            return self._table.values.get(name)

    def snapshot(self) -> dict[str, bytes]:
        """Return a copy of all properties of the store. Closed."""
        with self._monitor.lock:
            self._monitor.raise_if_closed()
            return dict(self._table.values)

    def change(self, decide: Decide) -> None:
        """See PropertySource. As safe as `sync` promises when this returns."""
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            changes = decide(self._table.values)
            if not changes:
                return
            self._records.change(changes)
            position = self._journal.end
        self._confirmer.confirm(position)


class Properties(MutableMapping[str, bytes]):
    """`Forebay.properties`, or those of a transaction: a MutableMapping of str to bytes. Thread-safe.

    For what a host must find again and has little of: bindings, sessions,
    cursors. A change is one record of the journal, as safe as `sync` promises
    when it returns; `update` and `clear` are one change. In a transaction
    changes are seen by its own `properties` at once, and by others from its
    commit on.

    All of it is in RAM and counts under memory_limit, so it is bounded by a
    quarter of max_file_length and 1 MiB: of each property the length of the
    value, 4 bytes a character of the name, and 256. PropertiesFull, StoreFull:
    nothing was changed. Iterating, and `items`, `keys` and `values`, take a
    copy. A read costs a lock.

    >>> bay.properties["cursor/eu"] = b"1042"
    >>> bay.properties["cursor/eu"]
    b'1042'
    """

    def __init__(self, source: PropertySource) -> None:
        self._source = source

    # ------------------------------------------------------------------ reading

    def __getitem__(self, name: str) -> bytes:
        found = self._source.find(name) if isinstance(name, str) else None
        if found is None:
            raise KeyError(name)
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._source.find(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._source.snapshot())

    def __len__(self) -> int:
        return len(self._source.snapshot())

    def keys(self) -> KeysView[str]:
        """Return the names as of now. O(properties)."""
        return self._source.snapshot().keys()

    def values(self) -> ValuesView[bytes]:
        """Return the values as of now. O(properties)."""
        return self._source.snapshot().values()

    def items(self) -> ItemsView[str, bytes]:
        """Return names and values as of now. O(properties)."""
        return self._source.snapshot().items()

    # ------------------------------------------------------------------ changing

    def __setitem__(self, name: str, value: bytes) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        self.pop(name)

    def update(self, changes: Any = (), /, **named: Any) -> None:
        """Set properties with one record: after a crash all of them are there, or none."""
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
        """Delete a property and return its value, or the default; KeyError where there is neither."""
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
        """Delete the property that is the newest, and return its name and value; KeyError where there is none."""
        popped: list[tuple[str, bytes]] = []

        def take(known: Mapping[str, bytes]) -> Changes:
            popped.extend((name, known[name]) for name in list(known)[-1:])
            return {name: None for name, _ in popped}

        self._source.change(take)
        if not popped:
            raise KeyError("there are no properties")
        return popped[0]

    def setdefault(self, name: str, default: Any = None, /) -> Any:
        """Return a property, and set it first where there is none of that name."""
        check_property_name(name)
        found = default

        def take(known: Mapping[str, bytes]) -> Changes:
            nonlocal found
            found = known[name] if name in known else _checked_value(default)
            return {} if name in known else {name: found}

        self._source.change(take)
        return found

    def clear(self) -> None:
        """Delete all properties with one record."""
        self._source.change(dict.fromkeys)

    def __repr__(self) -> str:
        return "<Properties>"


def check_property_name(name: object) -> str:
    """Return a name that a property can have: up to 1,024 bytes of UTF-8, not with a zero byte in front.

    SettingsError for another.
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
