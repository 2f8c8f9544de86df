"""Tables of the documentation that are written by hand have what the code has."""

from __future__ import annotations

import dataclasses
import re
import struct
import typing
from collections.abc import Callable
from pathlib import Path

import pytest
from doc_pages import ROOT, TEXTS, rows, section, source_files
from simulated_bay import SimulatedBay

import forebay
import forebay.metrics
from forebay.cache.accounting import holder_names, shares
from forebay.dispatch.config.policy import WhenFull
from forebay.dispatch.core.destinations.destination_state import DestinationState
from forebay.dispatch.engine import statistics
from forebay.dispatch.store_status import NUMBERS
from forebay.store.format import record, trace
from forebay.store.format.record import ENTRY_BYTES, HEADER_BYTES, KIND_NAMES, MESSAGE, RANGE, SLICE_BYTES
from forebay.store.journal.data_log import (
    DATA_LOG_HEADER_BYTES,
    DIRECTORY_MARK,
    FORMAT_VERSION,
    RECORDS_MAX,
    DataLogHeader,
    encode_header,
)
from forebay.store.structures.histogram import DurationStatistics


def tables(text: str) -> list[list[list[str]]]:
    """Return the rows of each table in a text, without headings."""
    return [rows(table) for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]


def names(cells: list[str]) -> list[str]:
    """Return the names in code that these cells have."""
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def first_column(table: list[list[str]]) -> list[str]:
    return names([row[0] for row in table])


# ------------------------------------------------------------------ internals


def test_table_of_the_ledger_has_every_holder_and_says_which_have_a_guarantee() -> None:
    holders, at_the_bound = tables(section(TEXTS["docs/internals/cache.md"], "The ledger"))
    known = {value for name, value in vars(holder_names).items() if name.isupper()}
    assert set(first_column(holders)) == known and len(holders) == len(known)
    assert set(first_column(at_the_bound)) < known
    guaranteed = {name for name, holder in SimulatedBay().budget.holders.items() if holder.guaranteed_bytes}
    assert {first_column([row])[0] for row in holders if "guaranteed" in row[3]} == guaranteed


def test_table_of_the_engine_has_every_layer_of_the_assembly() -> None:
    [layers, *_] = tables(TEXTS["docs/internals/dispatch-engine.md"])
    files = [*(ROOT / "dispatch/engine/assembly").glob("*.py"), ROOT / "dispatch/admin/admin_layer.py"]
    made = {
        name for path in files for name in re.findall(r"^class (\w+Layer|Environment)\b", path.read_text("utf-8"), re.M)
    }
    assert made == set(first_column(layers)) | {"DeadLetterLayer"}  # a part of the ClientLayer
    assert "`DeadLetterLayer`" in layers[first_column(layers).index("ClientLayer")][1]


def test_table_of_the_trace_header_is_what_is_written() -> None:
    [table] = tables(TEXTS["docs/internals/trace.md"])
    assert f"magic, `{trace.MAGIC.decode()}`" in table[0][2]
    at = 0
    for (offset, size, _), part in zip(table, re.findall(r"\d*[a-zA-Z]", trace.HEADER.format.lstrip("<")), strict=True):
        assert (int(offset), int(size)) == (at, struct.calcsize(f"<{part}"))
        at += int(size)


def test_table_of_lanes_names_the_classes_that_stand_there() -> None:
    simulated = SimulatedBay()
    queue, topic = simulated.queue("orders"), simulated.bay.topic("prices")
    topic.subscribe(durable="audit")
    topic.subscribe()
    for is_persistent in (True, False):
        queue.send(b"1", persistent=is_persistent)
        topic.send(b"1", persistent=is_persistent)
    area = simulated.topic_state("prices")
    holders: list[tuple[str, DestinationState]] = [("a queue", simulated.queue_state("orders")), ("a topic", area)]
    holders += [("a subscription", subscription) for subscription in area.open_subscriptions()]
    found: set[tuple[str, str, str]] = set()
    for name, destination in holders:
        for kind, lanes in (("", destination.lanes), (", non-persistent", destination.non_persistent_lanes)):
            found |= {(name + kind, type(lane.pending_lane).__name__, type(lane).__name__) for lane in lanes if lane}
    table = rows(section(TEXTS["docs/internals/lanes.md"], "Two objects a lane"))
    assert len(holders) == 4
    assert {(row[0].replace(", durable or not", ""), row[1].strip("`"), row[3].strip("`")) for row in table} == found


# ------------------------------------------------------------------ reference and guide


def test_tables_of_statistics_have_every_field() -> None:
    page = TEXTS["docs/reference/statistics.md"]
    whole, queue, durations, duration = map(first_column, tables(page))
    assert set(whole) == {field.name for field in dataclasses.fields(statistics.Statistics)}
    assert set(queue) == set(statistics.DestinationStatistics._fields)
    assert set(durations) == set(SimulatedBay().bay.statistics().durations)
    assert set(duration) == {field.name for field in dataclasses.fields(DurationStatistics)}
    health = {field.name for field in dataclasses.fields(forebay.Health)}
    assert health <= set(names([section(page, "Health")]))


def test_table_of_metrics_begins_as_every_metric_does(tmp_path: Path) -> None:
    table = tables(section(TEXTS["docs/guide/operating.md"], "Prometheus and OpenTelemetry"))[0]
    with forebay.open(tmp_path, memory_limit="4MiB", background=False) as bay:
        bay.queue("orders").send(b"tea")
        bay.topic("prices").subscribe(durable="audit").close()
        text = forebay.metrics.prometheus_text(bay)
    metrics = re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)
    begins = first_column(table)
    assert [metric for metric in metrics if not metric.startswith(tuple(begins))] == []
    assert [begin for begin in begins if not any(metric.startswith(begin) for metric in metrics)] == []


def test_table_of_queues_has_every_number_that_the_command_prints() -> None:
    [table] = tables(section(TEXTS["docs/guide/operating.md"], "See the queues"))
    assert set(first_column(table)) == {*NUMBERS, "name", "ready_in_flight", "oldest_seconds", "is_paused"}


def test_table_of_what_a_full_destination_does_has_every_choice() -> None:
    table = tables(section(TEXTS["docs/guide/limits.md"], "Limits of a destination"))[-1]
    assert {name.strip('"') for name in first_column(table)} == set(typing.get_args(WhenFull))


def test_memory_pages_have_every_holder_and_every_share(tmp_path: Path) -> None:
    guide, internals = TEXTS["docs/guide/memory.md"], TEXTS["docs/internals/cache.md"]
    with forebay.open(tmp_path, memory_limit="4MiB", background=False) as bay:
        holders = bay.statistics().memory.holders
    assert all(f"`{name}`" in guide and f"`{name}`" in internals for name in holders)
    for share in (
        shares.HEAD_QUEUE_CACHE_SHARE,
        shares.PENDING_CACHE_SHARE,
        shares.TARGET_LISTS_SHARE,
        shares.DISPATCH_AREA_SHARE,
    ):
        assert f"{100 * share:g} %" in guide and f"{100 * share:g} %" in internals
    assert shares.LARGE_MESSAGE_SHARE == 1 / 8 and "an eighth" in guide and "an eighth" in internals


def test_loggers_named_are_those_there_are() -> None:
    sources = "".join((ROOT / name).read_text(encoding="utf-8") for name in source_files("store", "cache", "dispatch"))
    loggers = set(re.findall(r'LateLogger\("(.+?)"\)', sources))
    named = [cell for row in rows(section(TEXTS["docs/guide/diagnostics.md"], "Logs")) for cell in row[:1]]
    assert {name.strip("`") for name in named} == loggers


# ------------------------------------------------------------------ bytes on disk

FORMAT = TEXTS["docs/internals/on-disk-format.md"]


def table_of_bytes(heading: str) -> list[list[str]]:
    """Return the first table of a section."""
    table = section(FORMAT, heading)
    begin = table.index("| offset |")
    return rows(table[begin : table.index("\n\n", begin)])


def bytes_of_slice() -> tuple[bytes, dict[str, int]]:
    data = record.encode_one(
        salt=0xA1A2A3A4,
        word=0x0B1B2B3B4B5B << 16 | record.MAGIC,
        stamped=record.stamp(0xC1C2C3C4, 0xD1D2D3D4D5D6D7D8),
        flags=7,
        destination_number=0xE1E2E3E4,
        sequence=0xF1F2F3F4F5F6F7F8,
        timestamp=0x0102030405060708,
        properties=b"properties",
        body=b"body",
        content_bytes=14,
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
    data = record.encode_ack(1, record.MAGIC, record.stamp(2, 3), 4, 0xE1E2E3E4, 0xF1F2F3F4F5F6F7F8, 0xA1A2A3A4)
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
        "first log sequence": header.first_log_sequence,
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
    table = section(FORMAT, "Record header")
    kinds = rows(table[table.index("| kind | name |") :])
    assert {int(number): name for number, name, _ in kinds} == KIND_NAMES


def test_flags_of_records_are_those_there_are() -> None:
    table = section(FORMAT, "Record header")
    flags = rows(table[table.index("| flag | name |") : table.index("| kind | name |")])
    of_count = record.IDENTIFIED >> record.FLAGS_SHIFT
    named = {name: getattr(record, name) for _, name, *_ in flags if name}
    assert {name: int(flag.split()[0], 16) for flag, name, *_ in flags if name} == {**named, "IDENTIFIED": of_count}
    assert record.PRIORITY_MASK | sum(named.values()) == 0xFF | record.IDENTIFIED


def test_numbers_of_the_format_are_those_of_the_code() -> None:
    assert f"{RECORDS_MAX:,} records" in FORMAT
    assert DIRECTORY_MARK.to_bytes(4, "little") == b"FDIR" and "`FDIR`" in FORMAT
    assert record.RECORD_BYTES_MAX == (1 << 30) + (1 << 20) and "1 GiB + 1 MiB" in FORMAT
