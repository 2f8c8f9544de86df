"""The reference names all that is public: `dir()` of each public module and each public object says the same."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import forebay
import forebay.aio
import forebay.metrics
import forebay.testing
from forebay import DestinationPolicy, ForebayError, Settings, codecs
from forebay.testing import MemoryForebay

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
API = (REFERENCE / "api.md").read_text(encoding="utf-8")
MODULES: dict[str, ModuleType] = {
    "forebay.aio": forebay.aio,
    "forebay.testing": forebay.testing,
    "forebay.codecs": codecs,
    "forebay.metrics": forebay.metrics,
}


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def coded(text: str) -> list[str]:
    """The identifiers with which inline code begins."""
    return re.findall(r"`([A-Za-z_]\w*)", text)


def rows(heading: str) -> list[list[str]]:
    """The rows of all tables below a heading, up to the next heading."""
    match = re.search(rf"^#+ {heading}\n(.*?)(?=^#+ |\Z)", API, re.MULTILINE | re.DOTALL)
    assert match is not None, heading
    lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in match[1].splitlines() if re.match(r"\| ?`", line)]
    return [[cell.strip() for cell in line] for line in lines]


def documented_objects() -> dict[str, set[str]]:
    """By name of a class, the members that its row names, with those of another class that it says it has."""
    found: dict[str, set[str]] = {}
    for name, members in rows("API"):
        if name.startswith("`forebay."):
            continue
        names = set(coded(members))
        other = re.search(r"those of a `?(\w+)`?", members)
        if other is not None and other[1].capitalize() in found:
            names |= found[other[1].capitalize()]
        elif other is not None and other[1] in ("Clock", "Disk"):
            names |= public(getattr(forebay, other[1]))
        found[coded(name)[0]] = names - {"Forebay", "Clock", "Disk", "MutableMapping", "str", "bytes"}
    return found


def objects(bay: MemoryForebay) -> dict[str, Any]:
    """One of each class that has a row."""
    queue, topic = bay.queue("orders"), bay.topic("prices")
    typed_queue, typed_topic = bay.queue("items", codec=codecs.JSON), bay.topic("news", codec=codecs.JSON)
    consumer, typed_consumer = queue.subscribe(), typed_queue.subscribe()
    queue.send(b"1 kg tea")
    typed_queue.send({"item": "tea"})
    (delivery,), (typed_delivery,) = consumer.take(), typed_consumer.take()
    found = [queue, topic, bay.topic("prices.>"), bay.temporary_queue(), bay.temporary_topic(), consumer, delivery]
    found += [bay.transaction(), topic.subscription("audit"), topic.reader("end"), bay.properties]
    found += [typed_queue, typed_topic, typed_consumer, typed_delivery, bay, bay.clock, bay.disk]
    return {type(each).__name__: each for each in found}


async def objects_in_loop(bay: Any) -> dict[str, Any]:
    """One of each class of forebay.aio, by its name there."""
    queue, topic = await bay.queue("orders"), await bay.topic("prices")
    typed_queue, typed_topic = await bay.queue("items", codec=codecs.JSON), await bay.topic("news", codec=codecs.JSON)
    consumer, typed_consumer = await queue.subscribe(), await typed_queue.subscribe()
    await queue.send(b"1 kg tea")
    await typed_queue.send({"item": "tea"})
    (delivery,), (typed_delivery,) = await consumer.take(), await typed_consumer.take()
    found = [bay, queue, topic, await bay.temporary_queue(), await bay.temporary_topic(), consumer, delivery]
    found += [bay.transaction(), topic.subscription("audit"), await topic.reader("end"), bay.properties]
    found += [typed_queue, typed_topic, typed_consumer, typed_delivery]
    return {type(each).__name__.removeprefix("Async"): each for each in found}


def test_names_of_each_module_are_those_of_the_page() -> None:
    listed = API.split("<!-- names -->")[1]
    assert set(dir(forebay)) == set(re.findall(r"`(\w+)`", listed))
    documented = {name.strip("`"): set(coded(members)) for name, members in rows("Names")}
    assert documented.keys() == MODULES.keys()
    for name, module in MODULES.items():
        assert set(dir(module)) == documented[name], name


def test_every_object_with_members_has_its_row_and_the_row_all_of_them() -> None:
    documented = documented_objects()
    with MemoryForebay() as bay:
        found = objects(bay)
        assert documented.keys() == {*found, "Forebay"}
        assert public(bay) - documented["Forebay"] == {"advance", "clock", "crash", "disk", "reopen"}
        for name, each in found.items():
            assert public(each) == documented[name], name


def test_objects_in_asyncio_differ_from_those_for_threads_where_the_page_says_so(tmp_path: Path) -> None:
    documented = documented_objects()
    differences = {coded(name)[0]: (set(coded(more)), set(coded(less))) for name, more, less in rows("In asyncio")}

    async def compare() -> None:
        async with forebay.aio.open(tmp_path, memory_limit="4MiB") as bay:
            found = await objects_in_loop(bay)
            assert set(found) | {"open"} == set(dir(forebay.aio))
            for name, each in found.items():
                more, less = differences.get(name, (set(), set()))
                for_threads = documented["Forebay"] if name == "Forebay" else documented[name]
                assert public(each) == for_threads - less | more - {"Forebay"}, name

    asyncio.run(compare())


def test_every_other_class_is_written_out_or_has_a_page() -> None:
    """`:::` writes all that a class has; errors, settings, policies and statistics have pages of their own."""
    documented = documented_objects()
    written = set(re.findall(r"^::: forebay\.(\w+)$", API, re.MULTILINE))
    assert written <= set(dir(forebay))
    pages = {name: (REFERENCE / f"{name}.md").read_text(encoding="utf-8") for name in ("errors", "statistics")}
    for name in dir(forebay):
        kind = getattr(forebay, name)
        if not isinstance(kind, type) or name in documented or name in written:
            continue
        if issubclass(kind, ForebayError | Warning):
            assert name in pages["errors"], name
        elif name not in ("Settings", "DestinationPolicy"):
            inherited = public(tuple) if issubclass(kind, tuple) else set()
            assert public(kind) - inherited <= set(coded(pages["statistics"])), name


@pytest.mark.parametrize(
    ("made", "page"), [(Settings(), "settings"), (DestinationPolicy(), "policies")], ids=["settings", "policies"]
)
def test_settings_and_policies_have_what_their_pages_name(made: Settings | DestinationPolicy, page: str) -> None:
    text = (REFERENCE / f"{page}.md").read_text(encoding="utf-8")
    fields = {field.name for field in dataclasses.fields(made) if field.init}
    table = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert fields <= table
    methods = {"from_activemq", "from_env", "from_toml", "to_toml"} if page == "settings" else set()
    assert public(made) == fields | methods
    assert all(method in text or page != "settings" for method in methods - {"from_activemq"})
