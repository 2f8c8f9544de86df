"""Import sets: taken over at open, once, in order; what is hostile or damaged is refused whole and named."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from import_sets import NOW_MS, Row, bring, expected, pending, rows_of, stage
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk, SimulatedFile

from forebay import SettingsError
from forebay.store.disk.layout import IMPORT, import_name, import_part_name, validate_load_id
from forebay.store.format.imports import IMPORTS_KEPT, ImportRecord, Imports, decode_import, encode_import
from forebay.store.format.record import MESSAGE, RecordDamaged, crc32, decode_header
from forebay.store.ingest.manifest import (
    LEASE_MS,
    PUBLISHED,
    REFUSED,
    TAKEN,
    Manifest,
    decode_manifest,
    encode_manifest,
    find_load,
    part_names,
    publish,
    read_manifest,
    remove_unnamed_parts,
)
from forebay.store.ingest.part import PartsWriter
from forebay.store.journal.data_log import DATA_LOG_HEADER_BYTES

MARK = ImportRecord("day-1", bytes(range(16)), 1000, 300)


def closed_bay(**fields: Any) -> SimulatedBay:
    """A store that was made and closed: sets may come now."""
    made = SimulatedBay(max_file_length="64KiB", **fields)
    made.queue("orders").send(b"before")
    made.bay.close()
    return made


def opened(made: SimulatedBay) -> SimulatedBay:
    made.open_again()
    made.check()
    return made


def problems(made: SimulatedBay) -> list[str]:
    return [report.problem for report in made.bay.recovery.imports if report.problem is not None]


# ---------------------------------------------------------------------- what is taken over


def test_all_of_a_set_is_pending_after_the_next_open_in_the_order_of_its_tasks() -> None:
    made = closed_bay()
    tasks = [rows_of(f"t{task}", 400, Random(task)) for task in range(3)]
    bring(made.disk, "day-1", *tasks, part_bytes_max=50_000)
    opened(made)
    (report,) = made.bay.recovery.imports
    assert (report.load_id, report.messages, report.problem) == ("day-1", 1200, None)
    assert pending(made.bay) == expected([Row("orders", b"before")], *tasks)


def test_what_travels_with_a_body_comes_along() -> None:
    made = closed_bay()
    bring(made.disk, "day-1", [Row("new", b"body", 7, 123_456, "mine")])
    opened(made)
    (delivery,) = made.queue("new").subscribe().take(1)
    assert (delivery.body, delivery.id, delivery.priority, delivery.headers) == (b"body", "mine", 7, {"load": "day-1"})
    assert delivery.timestamp == 123_456


def test_a_set_that_was_taken_over_leaves_its_name_and_nothing_else() -> None:
    made = closed_bay()
    bring(made.disk, "day-1", [Row("orders", b"x")])
    opened(made)
    assert made.disk.list(IMPORT) == ["day-1.taken"]
    found = find_load(made.disk, "day-1")
    assert found is not None and found[0] == TAKEN


def test_the_same_load_id_brings_nothing_a_second_time_whatever_its_set() -> None:
    made = closed_bay()
    bring(made.disk, "day-1", [Row("orders", b"x")])
    opened(made).bay.close()
    for name in made.disk.list(IMPORT):
        made.disk.remove(f"{IMPORT}/{name}")
    bring(made.disk, "day-1", [Row("orders", b"y"), Row("orders", b"z")], seed=1)
    opened(made)
    assert [report.messages for report in made.bay.recovery.imports] == [0] and not problems(made)
    assert pending(made.bay) == expected([Row("orders", b"before"), Row("orders", b"x")])
    assert made.disk.list(IMPORT) == ["day-1.taken"]


def test_load_ids_are_remembered_without_the_data_log_that_told_them_and_without_the_index() -> None:
    made = closed_bay()
    bring(made.disk, "day-1", [Row("orders", b"x")])
    opened(made)
    with made.queue("orders").subscribe() as consumer:
        consumer.ack(consumer.take(10))
    made.reopen()
    made.reopen()
    made.bay.cleanup()
    made.crash(is_index_lost=True)
    assert [mark.load_id for mark in made.store.imports] == ["day-1"]


def test_an_empty_set_is_taken_over_as_well() -> None:
    made = closed_bay()
    bring(made.disk, "nothing", [])
    opened(made)
    assert [(report.messages, report.problem) for report in made.bay.recovery.imports] == [(0, None)]
    assert made.disk.list(IMPORT) == ["nothing.taken"]


def test_messages_that_were_taken_over_are_relocated_like_any_other() -> None:
    made = closed_bay()
    rows = [Row("orders", b"%04d" % n * 1000) for n in range(600)]
    bring(made.disk, "day-1", rows)
    opened(made)
    with made.queue("orders").subscribe(prefetch=0) as consumer:
        while taken := consumer.take(1000):
            consumer.ack([delivery for delivery in taken if delivery.body != rows[50].body])
    made.bay.cleanup()
    sizes = made.store.disk_use.sizes()
    assert sum(sizes.values()) <= 2 * len(rows[50].body) + 3 * made.bay.settings.max_file_length_bytes
    made.crash(is_index_lost=True)
    assert pending(made.bay) == expected(rows[50:51])
    assert all(mark.is_done for mark in made.store.imports)


def test_one_record_is_in_memory_at_a_time() -> None:
    made = closed_bay()
    bring(made.disk, "day-1", [Row("orders", bytes(1000)) for _ in range(10_000)])
    made.disk.on_call = lambda call, name: None
    opened(made)
    assert made.bay.statistics().memory.held_bytes_max <= made.bay.settings.memory_limit_bytes
    assert made.store.disk_use.statistics().pending_messages == 10_001


# ---------------------------------------------------------------------- what is not


def test_parts_without_a_manifest_are_nothing() -> None:
    made = closed_bay()
    stage(made.disk, "day-1", [[Row("orders", b"x")]])
    opened(made)
    assert not made.bay.recovery.imports
    assert pending(made.bay) == expected([Row("orders", b"before")])


def damaged_part(made: SimulatedBay, damage: Callable[[bytearray], None]) -> list[str]:
    """Publish two parts, damage the second, open: what is said. Nothing of either may have come."""
    manifest = bring(made.disk, "day-1", [Row("orders", b"x")], [Row("orders", b"y" * 100), Row("orders", b"z")])
    name = part_names(manifest)[1]
    file = made.disk.open_for_reading(name)
    content = bytearray(file.read(0, file.size()))
    damage(content)
    made.disk.remove(name)
    made.disk.open(name, create=True).append(bytes(content))
    opened(made)
    assert pending(made.bay) == expected([Row("orders", b"before")])
    assert made.disk.exists(import_name("day-1", REFUSED))
    return problems(made)


def test_every_flipped_bit_refuses_the_whole_set() -> None:
    made = closed_bay()
    manifest = bring(made.disk, "day-1", [Row("orders", b"x")], [Row("orders", b"y" * 30)])
    name = part_names(manifest)[1]
    size = made.disk.open_for_reading(name).size()
    for offset in range(size):
        image = SimulatedBay.__new__(SimulatedBay)
        image.__dict__.update(made.__dict__)
        image.disk = made.disk.crash_process()
        image.disk.flip_bit(name, offset, offset % 8)
        image.open_again()
        assert len(problems(image)) == 1, offset
        assert pending(image.bay) == expected([Row("orders", b"before")])
        made.metadata = image.metadata = type(made.metadata)()


def test_every_cut_of_a_part_refuses_the_whole_set() -> None:
    for length in (0, 10, 64, 100, 150):

        def cut(content: bytearray, length: int = length) -> None:
            del content[length:]

        (problem,) = damaged_part(closed_bay(), cut)
        assert "where the manifest says" in problem


def test_a_missing_part_refuses_the_whole_set_and_is_named() -> None:
    made = closed_bay()
    manifest = bring(made.disk, "day-1", [Row("orders", b"x")], [Row("orders", b"y")])
    made.disk.remove(part_names(manifest)[1])
    opened(made)
    assert "part 65536 is missing" in problems(made)[0]
    assert pending(made.bay) == expected([Row("orders", b"before")])


def test_a_refused_set_does_not_keep_another_from_coming() -> None:
    made = closed_bay()
    made.disk.make_directory(IMPORT)
    made.disk.open(import_name("a", PUBLISHED), create=True).append(b"garbage")
    bring(made.disk, "b", [Row("orders", b"x")])
    opened(made)
    assert [(report.load_id, report.messages) for report in made.bay.recovery.imports] == [("a", 0), ("b", 1)]
    assert "does not verify" in problems(made)[0]


def test_a_refused_load_may_be_brought_again() -> None:
    made = closed_bay()
    made.disk.make_directory(IMPORT)
    made.disk.open(import_name("a", PUBLISHED), create=True).append(b"garbage")
    opened(made).bay.close()
    assert find_load(made.disk, "a") is None
    bring(made.disk, "a", [Row("orders", b"x")])
    opened(made)
    assert pending(made.bay) == expected([Row("orders", b"before"), Row("orders", b"x")])


def test_a_message_above_the_limit_refuses_the_whole_set() -> None:
    made = closed_bay(max_message_bytes="4KiB")
    bring(made.disk, "day-1", [Row("orders", b"x"), Row("orders", bytes(5000))])
    opened(made)
    assert "longer than it may be" in problems(made)[0] or "above max_message_bytes" in problems(made)[0]
    assert pending(made.bay) == expected([Row("orders", b"before")])


@pytest.mark.parametrize("name", ["", "a\nb"])
def test_a_name_that_no_queue_may_have_refuses_the_whole_set(name: str) -> None:
    made = closed_bay()
    bring(made.disk, "day-1", [Row(name, b"x")])
    opened(made)
    assert "a name is empty or holds a control character" in problems(made)[0]


def test_properties_that_are_none_refuse_the_whole_set() -> None:
    made = closed_bay()
    made.disk.make_directory(IMPORT)
    writer = PartsWriter(made.disk, bytes(16), 0, now_ms=NOW_MS, random_bytes=Random(1).randbytes)
    writer.add("orders", 4, NOW_MS, b"\xff\xff\xff", b"body")
    publish(made.disk, Manifest("day-1", bytes(16), tuple(writer.finish())))
    opened(made)
    assert "a header of unknown type 255" in problems(made)[0]


def test_a_set_that_was_exchanged_in_the_middle_is_refused() -> None:
    made = closed_bay()
    bring(made.disk, "day-1", [Row("orders", b"x")])
    made.open_again()
    made.store.imports.note(ImportRecord("day-2", bytes(16), 10, 5))
    made.bay.queue("other")
    made.bay.close()
    bring(made.disk, "day-2", [Row("orders", b"%d" % n) for n in range(10)])
    opened(made)
    assert "5 of 10 messages were taken from another set" in problems(made)[0]


def test_a_disk_that_fails_to_read_is_named_and_the_set_waits() -> None:
    made = closed_bay()
    bring(made.disk, "day-1", [Row("orders", b"x")])
    open_for_reading = made.disk.open_for_reading

    def failing(name: str) -> SimulatedFile:
        if name.startswith(f"{IMPORT}/part"):
            raise OSError(errno.EIO, "the device failed")
        return open_for_reading(name)

    made.disk.open_for_reading = failing  # type: ignore[method-assign]
    opened(made)
    assert "cannot be read" in problems(made)[0]
    made.disk.open_for_reading = open_for_reading  # type: ignore[method-assign]
    made.reopen()
    assert pending(made.bay) == expected([Row("orders", b"before"), Row("orders", b"x")])


def test_an_open_that_is_interrupted_while_it_takes_a_set_over_closes_what_it_opened() -> None:
    made = closed_bay()
    bring(made.disk, "day-1", [Row("orders", b"x")])
    open_for_reading = made.disk.open_for_reading
    closed: list[None] = []

    def interrupted(name: str) -> SimulatedFile:
        if name.startswith(f"{IMPORT}/part"):
            raise KeyboardInterrupt
        return open_for_reading(name)

    made.disk.open_for_reading = interrupted  # type: ignore[method-assign]
    made.metadata.close = lambda: closed.append(None)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        made.open_again()
    assert closed
    made.disk.open_for_reading = open_for_reading  # type: ignore[method-assign]
    opened(made)
    assert pending(made.bay) == expected([Row("orders", b"before"), Row("orders", b"x")])


def test_a_set_for_whose_records_memory_has_no_room_waits_for_an_open_with_more() -> None:
    made = closed_bay(max_message_bytes="4MiB")
    row = Row("orders", bytes(3 << 20))
    bring(made.disk, "day-1", [row])
    opened(made)
    assert "memory_limit has no room" in problems(made)[0] and "refused" not in problems(made)[0]
    made.bay.close()
    made.settings_given = replace(made.settings_given, memory_limit="16MiB")
    opened(made)
    assert problems(made) == [] and pending(made.bay) == expected([Row("orders", b"before"), row])


@pytest.mark.parametrize("entries", [None, 20_000])
def test_a_damaged_length_for_which_memory_has_no_room_is_damage_all_the_same(entries: int | None) -> None:
    made = closed_bay(max_message_bytes="4MiB")
    manifest = bring(made.disk, "day-1", [Row("orders", bytes(3 << 20))])
    [name] = part_names(manifest)
    file = made.disk.open_for_reading(name)
    stored = file.read(0, file.size())
    at = DATA_LOG_HEADER_BYTES + decode_header(stored, DATA_LOG_HEADER_BYTES).length
    header, content = decode_header(stored, at), bytearray(stored)
    assert header.kind == MESSAGE and header.length > 3 << 20
    if entries is None:
        content[at + 4 : at + 8] = (header.length - (1 << 16)).to_bytes(4, "little")
    else:
        content[at + 10 : at + 12] = entries.to_bytes(2, "little")
    made.disk.remove(name)
    made.disk.open(name, create=True).append(bytes(content))
    opened(made)
    assert "memory_limit" not in problems(made)[0] and f"at offset {at}" in problems(made)[0]
    assert made.disk.exists(import_name("day-1", REFUSED))


def test_a_full_store_takes_over_what_fits_and_the_rest_later() -> None:
    made = SimulatedBay(max_file_length="64KiB", store_limit="1MiB")
    made.bay.close()
    rows = [Row("orders", b"%04d" % n + bytes(3000)) for n in range(1000)]
    bring(made.disk, "day-1", rows)
    opened(made)
    (report,) = made.bay.recovery.imports
    assert 0 < report.messages < 1000 and "store_limit" in str(report.problem)
    seen: list[bytes] = []
    for _ in range(20):
        with made.queue("orders").subscribe(prefetch=0) as consumer:
            while taken := consumer.take(1000):
                seen += [delivery.body for delivery in taken]
                consumer.ack(taken)
        made.bay.cleanup()
        if made.store.imports.find("day-1").is_done:  # type: ignore[union-attr]
            break
        made.reopen()
    assert seen == [row.body for row in rows]


# ---------------------------------------------------------------------- publishing


def test_a_part_that_is_not_as_its_writer_said_is_not_published() -> None:
    disk = SimulatedDisk()
    manifest = stage(disk, "day-1", [[Row("orders", b"x")]])
    short = manifest._replace(parts=(manifest.parts[0]._replace(size_bytes=5),))
    with pytest.raises(RecordDamaged, match="bytes of 5"):
        publish(disk, short)
    disk.remove(part_names(manifest)[0])
    with pytest.raises(RecordDamaged, match="is missing"):
        publish(disk, manifest)
    assert find_load(disk, "day-1") is None


def test_a_publish_that_was_killed_is_done_again() -> None:
    disk = SimulatedDisk()
    manifest = stage(disk, "day-1", [[Row("orders", b"x")]])
    disk.open(import_name("day-1", "new"), create=True).append(b"half")
    publish(disk, manifest)
    assert read_manifest(disk, "day-1") == manifest


def test_removal_of_parts_leaves_what_a_manifest_names_and_what_is_young() -> None:
    disk = SimulatedDisk()
    kept = bring(disk, "kept", [Row("orders", b"x")])
    own = stage(disk, "own", [[Row("orders", b"x")]])
    other = stage(disk, "other", [[Row("orders", b"x")]])
    assert remove_unnamed_parts(disk, own.set_id, NOW_MS) == 1
    assert {disk.exists(name) for name in part_names(kept) + part_names(other)} == {True}
    assert remove_unnamed_parts(disk, bytes(16), NOW_MS + LEASE_MS + 1) == 1
    assert disk.exists(part_names(kept)[0]) and not disk.exists(part_names(other)[0])


class TakenMeanwhile(SimulatedDisk):
    """A disk on which a store that opens takes the parts of every set while somebody removes parts."""

    def list(self, directory: str) -> list[str]:
        names = super().list(directory)
        for name in names:
            if name.startswith("part-"):
                self.remove(f"{directory}/{name}")
        return names


def test_removal_of_parts_goes_on_where_a_store_takes_a_set_meanwhile() -> None:
    disk = TakenMeanwhile()
    stage(disk, "other", [[Row("orders", b"x")]])
    assert remove_unnamed_parts(disk, bytes(16), NOW_MS + LEASE_MS + 1) == 0


@pytest.mark.parametrize("load_id", ["", ".", "../x", "a/b", "a b", "x" * 101, "ß", None, 7, ".hidden"])
def test_a_load_id_that_is_no_name_is_refused(load_id: object) -> None:
    with pytest.raises(SettingsError, match="load_id"):
        validate_load_id(load_id)


# ---------------------------------------------------------------------- bytes


def test_manifest_comes_back() -> None:
    manifest = stage(SimulatedDisk(), "day-1", [[Row("orders", b"x")], [Row("orders", b"y")]])
    assert decode_manifest(encode_manifest(manifest), "day-1") == manifest
    with pytest.raises(RecordDamaged, match="another load"):
        decode_manifest(encode_manifest(manifest), "day-2")


def sealed(data: bytes) -> bytes:
    """With a checksum that fits, as a hostile writer would."""
    return data[:-4] + struct.pack("<I", crc32(data[:-4]))


def test_a_manifest_that_lies_is_refused() -> None:
    manifest = stage(SimulatedDisk(), "day-1", [[Row("orders", b"x")], [Row("orders", b"y")]])
    data = encode_manifest(manifest)
    swapped = encode_manifest(manifest._replace(parts=manifest.parts[::-1]))
    for lie, said in (
        (data[:8] + b"\x02" + data[9:], "version 2"),
        (b"X" + data[1:], "no manifest"),
        (data[:26] + b"\x07" + data[27:], "add up"),
        (data[:34] + b"\xff\xff\xff\xff" + data[38:], "another length"),
        (swapped, "not in order"),
    ):
        with pytest.raises(RecordDamaged, match=said):
            decode_manifest(sealed(lie), "day-1")


@given(st.binary(max_size=200))
def test_manifests_meet_arbitrary_bytes(data: bytes) -> None:
    for content in (data, sealed(b"FBIMPORT\1\0" + data + bytes(4))):
        try:
            decode_manifest(content, "day-1")
        except RecordDamaged:
            continue


def test_marks_come_back_and_every_cut_is_damage() -> None:
    data = encode_import(MARK)
    assert decode_import(data) == (MARK, len(data))
    for length in range(len(data)):
        with pytest.raises(RecordDamaged):
            decode_import(data[:length])
    with pytest.raises(RecordDamaged, match="cannot be taken over"):
        decode_import(encode_import(MARK._replace(taken=1001)))


def test_the_oldest_loads_that_are_done_are_forgotten_first() -> None:
    imports = Imports()
    imports.note(ImportRecord("unfinished", bytes(16), 2, 1))
    for number in range(IMPORTS_KEPT + 10):
        imports.note(ImportRecord(f"load-{number}", bytes(16), 1, 1))
    kept = [mark.load_id for mark in imports]
    assert len(kept) == IMPORTS_KEPT and kept[0] == "unfinished" and kept[1] == "load-11"


def test_only_unfinished_loads_leave_no_room_for_another() -> None:
    imports = Imports()
    for number in range(IMPORTS_KEPT):
        imports.note(ImportRecord(f"load-{number}", bytes(16), 2, 1))
    assert not imports.has_room
    imports.count(1)
    assert imports.has_room


def test_names_of_parts_are_made_of_numbers_alone() -> None:
    assert import_part_name(bytes(16), 3, 255) == f"import/part-{'0' * 32}-3-00000000000000ff.data"
