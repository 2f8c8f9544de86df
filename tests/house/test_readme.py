"""README, ARCHITECTURE and CHANGELOG: what they show runs, and what they name is there."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from reference import defaults_table

import forebay
from forebay.__main__ import main
from forebay.benchmarks.load.scenario_file import read_scenario, shipped
from forebay.cache import shares
from forebay.store.format import record
from forebay.store.format.record import ENTRY_BYTES, HEADER_BYTES, KIND_NAMES, MESSAGE, RANGE, SLICE_BYTES
from forebay.store.journal.data_log import (
    DATA_LOG_HEADER_BYTES,
    DIRECTORY_MARK,
    FORMAT_VERSION,
    RECORDS_MAX,
    DataLogHeader,
    encode_header,
)

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md")
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}
README, ARCHITECTURE, CHANGELOG = TEXTS.values()

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SOURCE_NAME = re.compile(r"`([\w/]+\.py)`")


def section(text: str, heading: str) -> str:
    """What stands below a heading, up to the next one of any level."""
    match = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert match is not None, f"no section {heading!r}"
    return match[1]


def code(text: str) -> str:
    """Inline code and shell examples; prose is left out."""
    shell = [match[2] for match in FENCED.finditer(text) if match[1] == "sh"]
    return "\n".join([*re.findall(r"`([^`\n]+)`", FENCED.sub("", text)), *shell])


def rows(text: str) -> list[list[str]]:
    """Cells of a table, without its heading. A | that is escaped divides no cells."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def resolve(dotted: str) -> object:
    """`Queue.send` as an attribute of the package; AttributeError where it is not there."""
    found: object = forebay
    for name in dotted.removeprefix("forebay.").split("."):
        found = getattr(found, name)
    return found


def source_files(*folders: str) -> set[str]:
    """Modules that hold any code."""
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")] + list(ROOT.glob("*.py"))
    return {path.relative_to(ROOT).as_posix() for path in found if path.stat().st_size}


# ------------------------------------------------------------------ README


def test_examples_run_and_print_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    said: list[str] = []
    for match in FENCED.finditer(README):
        if match[1] == "python":
            line = README.count("\n", 0, match.start(2))
            exec(compile("\n" * line + match[2], "README.md", "exec"), names)
            said += re.findall(r"print\(.*\)  # (.*)", match[2])
    assert said
    assert capsys.readouterr().out.splitlines() == said


def test_settings_table_is_the_generated_one() -> None:
    assert f"<!-- settings -->\n{defaults_table()}\n<!-- /settings -->" in README


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_named_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake ([a-z-]+)", code(TEXTS[page])))
    assert page != "README.md" or {"demo", "test"} <= named
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_commands_and_scenarios_are_those_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    commands = re.findall(r"^ {4}([a-z]+)\b", capsys.readouterr().out, re.MULTILINE)
    table = rows(section(README, "Command line"))
    assert [re.findall(r"forebay ([a-z]+)", row[0]) for row in table] == [[command] for command in commands]
    assert all(f"`{name}`" in table[0][1] for name in shipped())
    for command, row in zip(commands, table, strict=True):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        options = set(re.findall(r"--[a-z]+", capsys.readouterr().out))
        assert set(re.findall(r"--[a-z]+", " ".join(row))) == options - {"--help"}


def test_scenario_that_is_shown_is_one(tmp_path: Path) -> None:
    [shown] = [match[2] for match in FENCED.finditer(README) if match[1] == "toml"]
    path = tmp_path / "shown.toml"
    path.write_text(shown, encoding="utf-8")
    assert read_scenario(str(path)).kills == 1


def test_members_named_are_there(tmp_path: Path) -> None:
    with forebay.open(tmp_path, memory_limit="4MiB", background=False) as bay:
        queue = bay.queue("orders")
        queue.send(b"1 kg tea")
        with queue.subscribe() as consumer:
            [delivery] = consumer.take()
            transaction = bay.transaction()
            objects = {"Forebay": bay, "Queue": queue, "Topic": bay.topic("prices")}
            objects |= {"Consumer": consumer, "Delivery": delivery, "Transaction": transaction}
            for name, members in rows(section(README, "More of it"))[1:]:
                found = objects.pop(name.strip("`"))
                named = set(re.findall(r"`([a-z_]+)", members))
                public = {member for member in dir(found) if not member.startswith("_")}
                assert named <= public
                # Of these two, the engine uses some that are nobody else's business.
                assert named == public or found in (consumer, transaction)
    assert objects == {}


def test_what_is_not_yet_there_is_not_there() -> None:
    """Whoever adds one of these takes it off the list."""
    named = [name for name in re.findall(r"`([\w.]+)`", section(README, "Not yet")) if "." in name]
    for name in named:
        if not name.startswith("bay."):
            with pytest.raises(AttributeError):
                resolve(name)


def test_memory_drawing_has_every_holder_and_every_share(tmp_path: Path) -> None:
    text = section(README, "Memory")
    with forebay.open(tmp_path, memory_limit="4MiB", background=False) as bay:
        holders = bay.statistics().memory.holders
    assert all(f"`{name}`" in text for name in holders)
    for share in (
        shares.HEAD_QUEUE_CACHE_SHARE,
        shares.PENDING_CACHE_SHARE,
        shares.TARGET_LISTS_SHARE,
        shares.DISPATCH_AREA_SHARE,
    ):
        assert f"{100 * share:g} %" in text and f"{100 * share:g} %" in section(ARCHITECTURE, "Memory")
    assert shares.LARGE_MESSAGE_SHARE == 1 / 8 and "an eighth" in text


def test_tree_of_errors_is_whole() -> None:
    named = re.findall(r"(\w+)  +\w", section(README, "Errors"))
    errors = {
        name
        for name in forebay.__all__
        if isinstance(found := getattr(forebay, name), type) and issubclass(found, forebay.ForebayError)
    }
    assert {"ForebayError", *named} == errors


def test_loggers_named_are_those_there_are() -> None:
    sources = "".join((ROOT / name).read_text(encoding="utf-8") for name in source_files("store", "cache", "dispatch"))
    loggers = set(re.findall(r'getLogger\("(.+?)"\)', sources))
    assert set(re.findall(r"`(forebay\.[a-z._]+)`", section(README, "Command line"))) == loggers


# ------------------------------------------------------------------ ARCHITECTURE


def test_each_test_that_is_named_exists() -> None:
    named = set(re.findall(r"(tests/[\w/]+\.py)::(test_\w+)", ARCHITECTURE))
    assert len(named) >= 14
    for file, function in named:
        assert f"def {function}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{function}"


def table_of_bytes(heading: str) -> list[list[str]]:
    """The first table of a section."""
    table = section(ARCHITECTURE, heading)
    begin = table.index("| offset |")
    return rows(table[begin : table.index("\n\n", begin)])


def bytes_of_slice() -> tuple[bytes, dict[str, int]]:
    data = record.encode_one(
        salt=0xA1A2A3A4,
        word=0x0B1B2B3B4B5B << 16 | record.MAGIC,
        epoch=0xC1C2C3C4,
        durable=0xD1D2D3D4D5D6D7D8,
        priority=7,
        destination=0xE1E2E3E4,
        sequence=0xF1F2F3F4F5F6F7F8,
        timestamp=0x0102030405060708,
        properties=b"properties",
        body=b"body",
    )
    return data, {
        "crc": record.crc32(data[4 : SLICE_BYTES + ENTRY_BYTES], 0xA1A2A3A4),
        "length": len(data),
        "kind": MESSAGE,
        "flags": 7,
        "count": 1,
        "magic": record.MAGIC,
        "log sequence": 0x0B1B2B3B4B5B,
        "epoch": 0xC1C2C3C4,
        "durable": 0xD1D2D3D4D5D6D7D8,
        "destination": 0xE1E2E3E4,
        "first sequence": 0xF1F2F3F4F5F6F7F8,
        "timestamp": 0x0102030405060708,
        "crc of message": record.crc32(b"propertiesbody"),
        "content length": len(b"propertiesbody"),
        "properties length": len(b"properties"),
    }


def bytes_of_ack() -> tuple[bytes, dict[str, int]]:
    data = record.encode_ack(1, record.MAGIC, 2, 3, 4, 0xE1E2E3E4, 0xF1F2F3F4F5F6F7F8, 0xA1A2A3A4)
    return data, {"destination": 0xE1E2E3E4, "first sequence": 0xF1F2F3F4F5F6F7F8, "messages": 0xA1A2A3A4}


def bytes_of_data_log_header() -> tuple[bytes, dict[str, int]]:
    header = DataLogHeader(0xA1A2A3A4, bytes(range(16)), 0xB1B2B3B4, 0xC1C2C3C4, 0xD1D2D3D4D5D6D7D8, 0xE1E2E3E4E5E6E7E8)
    data = encode_header(header)
    return data, {
        "magic": int.from_bytes(b"FOREBAY1", "little"),
        "version": FORMAT_VERSION,
        "header bytes": DATA_LOG_HEADER_BYTES,
        "salt": header.salt,
        "store id": int.from_bytes(header.store_id, "little"),
        "data log id": header.data_log,
        "epoch": header.epoch,
        "first log sequence": header.first_sequence,
        "created": header.created,
        "crc": record.crc32(data[:56]),
        "padding": 0,
    }


@pytest.mark.parametrize(
    ("heading", "begin", "end", "make"),
    [
        ("Data log header", 0, DATA_LOG_HEADER_BYTES, bytes_of_data_log_header),
        ("Record header", 0, HEADER_BYTES, bytes_of_slice),
        ("Slice", HEADER_BYTES, SLICE_BYTES + ENTRY_BYTES, bytes_of_slice),
        ("Ack", HEADER_BYTES, HEADER_BYTES + 4 + RANGE.size, bytes_of_ack),
    ],
)
def test_table_of_bytes_is_what_is_written(
    heading: str, begin: int, end: int, make: Callable[[], tuple[bytes, dict[str, int]]]
) -> None:
    data, values = make()
    at = begin
    for offset, size, name in table_of_bytes(heading):
        assert int(offset) == at, f"{name} begins at {at}"
        at += int(size)
        assert int.from_bytes(data[int(offset) : at], "little") == values[name], name
    assert at == end


def test_kinds_of_records_are_those_there_are() -> None:
    table = section(ARCHITECTURE, "Record header")
    kinds = rows(table[table.index("| kind | name |") :])
    assert {int(number): name for number, name, _ in kinds} == KIND_NAMES


def test_numbers_of_the_format_are_those_of_the_code() -> None:
    assert f"{RECORDS_MAX:,} records" in ARCHITECTURE
    assert DIRECTORY_MARK.to_bytes(4, "little") == b"FDIR" and "`FDIR`" in ARCHITECTURE
    assert record.RECORD_BYTES_MAX == (1 << 30) + (1 << 20) and "1 GiB + 1 MiB" in ARCHITECTURE


@pytest.mark.parametrize("page", PAGES)
def test_sources_named_exist(page: str) -> None:
    assert [name for name in SOURCE_NAME.findall(TEXTS[page]) if not (ROOT / name).is_file()] == []


# ------------------------------------------------------------------ all pages


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_resolve(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)", TEXTS[page])
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_changelog_begins_with_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    headings = re.findall(r"^## (\S+)", CHANGELOG, re.MULTILINE)
    assert headings[0] == version
