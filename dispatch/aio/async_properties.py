"""AsyncProperties: the properties of a store in an event loop. Reads are from RAM; writes are awaited."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any

from ..host_properties import Properties
from .awaiting import asynchronous
from .loop import LoopConfirmer


@asynchronous(
    "bay.properties of forebay.aio",
    setting="await bay.properties.set(name, value)",
    deleting="await bay.properties.delete(name)",
)
class AsyncProperties(Mapping[str, bytes]):
    """`Forebay.properties` in its loop. A Mapping, like `forebay.Properties`; its changes are coroutines.

    A worker thread writes, so a cancelled change still happens. The `properties` of a transaction write nothing, so
    they are those for threads.
    """

    def __init__(self, caller: LoopConfirmer, properties: Properties) -> None:
        self._caller = caller
        self._properties = properties

    def __getitem__(self, name: str) -> bytes:
        return self._properties[name]

    def __contains__(self, name: object) -> bool:
        return name in self._properties

    def __iter__(self) -> Iterator[str]:
        return iter(self._properties)

    def __len__(self) -> int:
        return len(self._properties)

    def keys(self) -> KeysView[str]:
        """Return the names at this moment. O(properties)."""
        return self._properties.keys()

    def values(self) -> ValuesView[bytes]:
        """Return the values at this moment. O(properties)."""
        return self._properties.values()

    def items(self) -> ItemsView[str, bytes]:
        """Return names and values at this moment. O(properties)."""
        return self._properties.items()

    async def set(self, name: str, value: bytes) -> None:
        """Set a property. PropertiesFull or StoreFull: nothing has changed."""
        await self.update({name: value})

    async def delete(self, name: str) -> None:
        """Delete a property. KeyError: there is none of that name."""
        await self.pop(name)

    async def update(self, changes: Any = (), /, **named: Any) -> None:
        """Set properties with one record. After a crash all of them are there, or none."""
        await self._caller.call(lambda: self._properties.update(changes, **named))

    async def pop(self, name: str, *default: Any) -> Any:
        """Delete a property and return its value, or the default. KeyError: there is neither."""
        return await self._caller.call(self._properties.pop, name, *default)

    async def clear(self) -> None:
        """Delete all properties with one record."""
        await self._caller.call(self._properties.clear)

    def __repr__(self) -> str:
        return repr(self._properties)
