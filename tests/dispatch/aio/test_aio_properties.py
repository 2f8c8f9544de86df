"""Properties in an event loop: reads are in RAM, changes are awaited, and a forgotten await says so."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import forebay.aio
from forebay import NotAwaited


def test_changes_are_awaited_and_reads_are_not(tmp_path: Path) -> None:
    async def use() -> None:
        async with forebay.aio.open(tmp_path, memory_limit="16MiB") as bay:
            properties = bay.properties
            await properties.set("a", b"1")
            await properties.update({"b": b"2"}, c=b"3")
            await properties.delete("c")
            assert await properties.pop("c", None) is None and await properties.pop("b") == b"2"
            with pytest.raises(KeyError):
                await properties.delete("b")
            assert dict(properties) == {"a": b"1"} and properties["a"] == b"1" and "b" not in properties
            async with bay.transaction() as transaction:
                transaction.properties["t"] = b"4"
                assert "t" not in properties
            assert list(properties.items()) == [("a", b"1"), ("t", b"4")]
            await properties.clear()
            assert not properties

    asyncio.run(use())


def test_item_that_is_set_without_await_says_what_to_write(tmp_path: Path) -> None:
    async def use() -> None:
        async with forebay.aio.open(tmp_path, memory_limit="16MiB") as bay:
            properties: Any = bay.properties
            with pytest.raises(NotAwaited, match=r"await bay.properties.set\(name, value\)"):
                properties["a"] = b"1"
            with pytest.raises(NotAwaited, match=r"await bay.properties.delete\(name\)"):
                del properties["a"]

    asyncio.run(use())
