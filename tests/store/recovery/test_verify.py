"""Verify: it finds all damage, and none where there is none."""

from __future__ import annotations

from array import array
from random import Random
from typing import Any, cast
from zlib import crc32

import pytest
from closed_stores import Beside, GrowingDisk, place_of, places, records, rewrite, small_bay, two_data_logs, verdict_of
from crash_workload import Mix, Model, Workload
from crashing import FIRST_SEED
from inside import open_forebay
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Forebay, JournalCorrupt, Message, Settings
from forebay.dispatch.config.settings import SyncMode
from forebay.store.disk.disk import Disk, File
from forebay.store.disk.layout import data_log_name
from forebay.store.format.record import ACK, DIRECTORY, KIND_NAMES, MAGIC, MESSAGE, RETURN, encode
from forebay.store.format.return_record import RETURNED
from forebay.store.inspect.dump import dump
from forebay.store.journal.data_log import (
    DATA_LOG_HEADER_BYTES,
    DataLogHeader,
    decode_data_log_header,
    directory_payload,
    encode_header,
)
from forebay.store.journal.scan import RELISTINGS_MAX
from forebay.store.recovery.verify import DataLogFacts, Verdict, examine, examine_all, judge
from forebay.testing import ManualClock

SETTINGS = Settings(background=False, memory_limit="4MiB", max_file_length="64KiB")


def test_whole_journal_has_neither_findings_nor_tail() -> None:
    disk = two_data_logs()
    examined = list(examine_all(disk))
    assert judge(examined) == Verdict((), None, 0)
    assert [(facts.data_log, facts.messages, facts.is_sealed) for facts in examined] == [(1, 10, True), (2, 1, True)]


def test_each_flipped_bit_of_an_older_data_log_is_a_finding_in_it() -> None:
    disk = two_data_logs()
    name = data_log_name(1)
    for offset in range(disk.open_for_reading(name).size()):
        for bit in range(8):
            disk.flip_bit(name, offset, bit)
            findings = verdict_of(disk).findings
            disk.flip_bit(name, offset, bit)
            assert findings and findings[0].data_log == 1, f"byte {offset}, bit {bit}"


def test_each_flipped_bit_of_the_newest_data_log_is_named_and_all_that_its_seal_covers_is_a_finding() -> None:
    disk = two_data_logs()
    name = data_log_name(2)
    seal = place_of(disk, 2, DIRECTORY)
    for offset in range(disk.open_for_reading(name).size()):
        disk.flip_bit(name, offset, offset % 8)
        verdict = verdict_of(disk)
        disk.flip_bit(name, offset, offset % 8)
        assert verdict.findings or verdict.tail, f"byte {offset}"
        if DATA_LOG_HEADER_BYTES <= offset < seal:
            assert verdict.findings, f"byte {offset}"


def test_bad_body_costs_that_message_alone() -> None:
    disk = two_data_logs()
    offset = place_of(disk, 1, MESSAGE, 1)
    _, record = next(found for found in records(disk, 1) if found[0] == offset)
    disk.flip_bit(data_log_name(1), offset + record.length - 1, 0)
    [first, _] = examined = list(examine_all(disk))
    [finding] = judge(examined).findings
    assert finding == (1, offset, "1 of 3 messages do not verify: 'orders', priority 4, sequence 5")
    assert first.messages == 9


def test_verify_goes_on_behind_damage_and_names_each_place() -> None:
    disk = two_data_logs()
    damaged = [place_of(disk, 1, MESSAGE, 0), place_of(disk, 1, MESSAGE, 2), place_of(disk, 1, ACK)]
    for offset in damaged:
        disk.flip_bit(data_log_name(1), offset, 0)
    assert places(verdict_of(disk).findings) == [(1, offset) for offset in damaged]


def test_zeroed_sector_is_named_with_the_records_it_took() -> None:
    disk = two_data_logs()
    first, last = place_of(disk, 1, MESSAGE, 0), place_of(disk, 1, MESSAGE, 3)
    disk.zero(data_log_name(1), first, last - first)
    [finding] = verdict_of(disk).findings
    assert finding == (1, first, f"zeros where records were; records up to offset {last} are lost: 3")


def test_missing_record_is_named_though_all_others_verify() -> None:
    disk = two_data_logs()
    name, offset = data_log_name(1), place_of(disk, 1, MESSAGE, 1)
    image = bytearray(disk.image()[name])
    _, record = next(found for found in records(disk, 1) if found[0] == offset)
    del image[offset : offset + record.length]
    rewrite(disk, name, bytes(image))
    assert (1, offset) in places(verdict_of(disk).findings)


def test_torn_write_of_a_killed_process_is_a_tail() -> None:
    store = small_bay(sync="always")
    queue = store.queue()
    queue.send(b"one")
    for cut in range(1, 200, 7):
        disk = store.disk.crash_process()
        name = data_log_name(1)
        end = records(disk, 1)[-1]
        behind = end[0] + end[1].length
        whole = small_bay(sync="always").disk  # a record that verifies nowhere but in its own file
        torn = disk.image()[name][:behind] + whole.image()[name][DATA_LOG_HEADER_BYTES:][:cut]
        rewrite(disk, name, torn.ljust(1 << 16, b"\0"))
        verdict = verdict_of(disk)
        assert verdict.findings == ()
        assert verdict.tail is not None and verdict.tail[:2] == (1, behind)


def test_place_below_what_a_record_knew_to_be_durable_is_damage_though_nothing_follows_it() -> None:
    store = small_bay(sync="always")
    queue = store.queue()
    for n in range(3):
        queue.send(b"%d" % n)
    disk, offset = store.disk, place_of(store.disk, 1, MESSAGE, 2)
    disk.flip_bit(data_log_name(1), offset, 0)
    verdict = verdict_of(disk)
    assert verdict.findings == ()
    assert verdict.tail is not None and verdict.tail[:2] == (1, offset)
    earlier = place_of(store.disk, 1, MESSAGE, 0)
    disk.flip_bit(data_log_name(1), earlier, 0)
    assert places(verdict_of(disk).findings) == [(1, earlier)]


def test_data_log_cut_at_a_record_ends_before_the_next_one_begins() -> None:
    disk = two_data_logs()
    offset = place_of(disk, 1, DIRECTORY)
    disk.open(data_log_name(1)).truncate(offset)
    [finding] = verdict_of(disk).findings
    assert places((finding,)) == [(1, offset)]
    assert "the next one begins with" in finding.problem


def test_bytes_behind_a_seal_and_zeros_before_the_next_data_log_are_named() -> None:
    disk = two_data_logs()
    name, size = data_log_name(1), disk.open_for_reading(data_log_name(1)).size()
    disk.open(name).truncate(size + 100)
    assert verdict_of(disk) == Verdict((), None, 0)
    disk.flip_bit(name, size + 50, 0)
    assert verdict_of(disk).findings == ((1, size, "51 bytes behind the seal"),)
    killed = small_bay(sync="always")
    killed.queue().send(b"body")
    disk = killed.disk.crash_process()
    bay = open_forebay(disk, SimulatedMetadataStore(), SETTINGS, ManualClock(1))
    bay.close()
    end = disk.open_for_reading(name).size()
    assert verdict_of(disk) == Verdict((), None, 0)
    disk.open(name).truncate(end + 100)
    assert places(verdict_of(disk).findings) == [(1, end)]


def test_directory_that_names_other_records_is_a_finding() -> None:
    disk = two_data_logs()
    name, offset = data_log_name(1), place_of(disk, 1, DIRECTORY)
    image = disk.image()[name]
    header = decode_data_log_header(image[:DATA_LOG_HEADER_BYTES])
    _, seal = records(disk, 1)[-1]
    offsets = array("I", [DATA_LOG_HEADER_BYTES])
    word = seal.log_sequence << 16 | MAGIC
    other = encode(header.salt, word, seal.epoch, seal.durable, DIRECTORY, 0, 0, directory_payload(offsets, offset))
    rewrite(disk, name, image[:offset] + other)
    assert places(verdict_of(disk).findings) == [(1, offset)]


def test_missing_data_log_is_named_and_a_dropped_one_is_not() -> None:
    store = small_bay()
    queue = store.queue()
    queue.send_many(Message(bytes(1000)) for _ in range(300))
    with queue.subscribe(prefetch=0) as consumer:
        consumer.ack(consumer.take(150, timeout=10))
    deleted = store.bay.cleanup().deleted
    assert deleted
    assert verdict_of(store.disk).findings == ()
    store.disk.remove(data_log_name(max(deleted) + 1))
    assert places(verdict_of(store.disk).findings) == [(max(deleted) + 1, 0)]


def test_data_log_of_another_store_or_name_is_named() -> None:
    disk, other = two_data_logs(), small_bay(2)
    other.reopen()
    rewrite(disk, data_log_name(2), other.disk.image()[data_log_name(2)])
    assert (2, 0, "the data log belongs to another store") in verdict_of(disk).findings
    disk = two_data_logs()
    rewrite(disk, data_log_name(1), disk.image()[data_log_name(2)])
    assert (1, 0, "the data log was written as data-2.log") in verdict_of(disk).findings


def test_data_log_of_a_newer_format_is_named() -> None:
    disk = two_data_logs()
    image = bytearray(disk.image()[data_log_name(1)])
    header = DataLogHeader(0, bytes(16), 1, 1, 1, 0)
    image[:DATA_LOG_HEADER_BYTES] = _with_version(encode_header(header), 4)
    rewrite(disk, data_log_name(1), bytes(image))
    assert "format version 4" in verdict_of(disk).findings[0].problem


def _with_version(header: bytes, version: int) -> bytes:
    head = header[:8] + version.to_bytes(2, "little") + header[10:56]
    return head + crc32(head).to_bytes(4, "little") + bytes(4)


@pytest.mark.parametrize("kind", [*KIND_NAMES, 99])
def test_record_of_nonsense_that_verifies_is_a_finding_or_nothing_and_never_an_exception(kind: int) -> None:
    random = Random(kind)
    disk = two_data_logs()
    name = data_log_name(1)
    image = disk.image()[name]
    header = decode_data_log_header(image[:DATA_LOG_HEADER_BYTES])
    for n in range(200):
        payload = random.randbytes(random.choice((0, 4, 16, 20, 40, 100)))
        word = header.first_log_sequence << 16 | MAGIC
        record = encode(header.salt, word, 1, random.getrandbits(64), kind, 4, random.randrange(4), payload)
        rewrite(disk, name, image[:DATA_LOG_HEADER_BYTES] + record)
        verdict_of(disk)
        assert list(dump(disk, with_headers=True)), f"seed {kind}, round {n}"


def test_return_record_that_counts_nothing_is_named_as_replay_would_refuse_it() -> None:
    disk = two_data_logs()
    name = data_log_name(1)
    image = disk.image()[name]
    header = decode_data_log_header(image[:DATA_LOG_HEADER_BYTES])
    word = header.first_log_sequence << 16 | MAGIC
    counts = (0).to_bytes(4, "little") + bytes(RETURNED.size)  # a run of no messages, and no attempts
    record = encode(header.salt, word, 1, 0, RETURN, 4, 1, counts)
    rewrite(disk, name, image[:DATA_LOG_HEADER_BYTES] + record)
    assert "counts nothing" in verdict_of(disk).findings[0].problem


# Verify and recovery agree


@pytest.mark.parametrize("sync", ["always", "interval", "never"])
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 5))
def test_what_a_power_cut_leaves_is_a_tail_at_most(seed: int, sync: SyncMode) -> None:
    random = Random(seed)
    settings = Settings(background=False, memory_limit="4MiB", max_file_length="64KiB", sync=sync)
    disk, metadata, clock = SimulatedDisk(), SimulatedMetadataStore(), ManualClock(seed)

    def examine_crash(call: str, name: str) -> None:
        for image in (disk.crash_process(), disk.crash_power(random, random.choice(list(PowerCut)))):
            verdict = verdict_of(image)
            assert verdict.findings == (), f"seed {seed}, sync={sync}, {call} {name}: {verdict}"

    def open_bay() -> Forebay:
        return open_forebay(disk, metadata, settings, clock)

    bay = open_bay()
    disk.on_call = examine_crash

    def reopen() -> Forebay:
        nonlocal bay
        bay.close()
        bay = open_bay()
        return bay

    workload = Workload(Mix.draw(seed), random, Model(), bay, reopen=reopen, advance=clock.advance)
    for _ in range(30):
        workload.step()


def test_verify_names_a_place_wherever_opening_is_refused() -> None:
    """The mark of a clean shutdown, which verify does not read, may know more to be durable than the journal does."""
    random = Random(1)
    for n in range(300):
        disk = two_data_logs()
        data_log = random.choice((1, 2))
        name = data_log_name(data_log)
        size = disk.open_for_reading(name).size()
        if random.random() < 0.5:
            offset = random.randrange(size)
            disk.zero(name, offset, min(random.randrange(1, 200), size - offset))
        else:
            disk.open(name).truncate(random.randrange(size))
        verdict = verdict_of(disk)
        try:
            open_forebay(disk, SimulatedMetadataStore(), SETTINGS, ManualClock())
        except JournalCorrupt:
            assert verdict.findings or (verdict.tail is not None and data_log == 2), f"round {n}"


# Beside a live process


def test_data_log_that_grows_meanwhile_is_never_damaged() -> None:
    for seed in range(1, 401):
        random = Random(seed)
        store = small_bay(seed, sync="always")
        queue = store.queue()
        for _ in range(20):
            queue.send_many(Message(random.randbytes(random.randrange(200))) for _ in range(random.randrange(1, 4)))
        content = store.disk.image()[data_log_name(1)]
        seen_bytes = random.randrange(DATA_LOG_HEADER_BYTES, 4_000)
        assert verdict_of(GrowingDisk(content, seen_bytes, random)).findings == (), f"seed {seed}"
        kinds = {row["kind"] for row in dump(GrowingDisk(content, seen_bytes, random))}
        assert kinds <= {"state", "destination", "message", "torn", "unseen"}, f"seed {seed}"


class Outrun:
    """A data log whose owner has written one more record before each read that reaches behind what was written."""

    def __init__(self, content: bytes, ends: list[int]) -> None:
        self._content = content
        self._ends = ends

    def read(self, offset: int, length: int) -> bytes:
        if offset + length > self._ends[0] and len(self._ends) > 1:
            self._ends.pop(0)
        return self._content[: self._ends[0]].ljust(len(self._content), b"\0")[offset : offset + length]

    def size(self) -> int:
        return len(self._content)

    def close(self) -> None: ...


def test_owner_that_is_faster_than_verify_is_not_followed_for_ever_and_what_was_not_seen_is_named() -> None:
    store = small_bay()
    for n in range(50):
        store.queue().send(b"%d" % n)
    content = store.disk.image()[data_log_name(1)]
    ends = [offset + record.length for offset, record in records(store.disk, 1)]
    facts = examine(1, cast(File, Outrun(content, ends[5:])))
    assert facts.unseen_from == facts.end in ends[6:20]
    assert judge([facts]) == Verdict((), None, 0)
    at_rest = examine(1, cast(File, Outrun(content, ends[-1:])))
    assert (at_rest.unseen_from, at_rest.end) == (None, ends[-1])
    disk = GrowingDisk(content, 0, Random(1))
    disk._file_that_grows = Outrun(content, ends[5:])
    last = list(dump(disk))[-1]
    assert (last["kind"], last["offset"]) == ("unseen", facts.end)


def test_data_logs_deleted_meanwhile_are_passed_over() -> None:
    store = small_bay()
    queue = store.queue()
    queue.send_many(Message(bytes(1000)) for _ in range(300))
    with queue.subscribe(prefetch=0) as consumer:
        consumer.ack(consumer.take(250, timeout=10))
    disk: Any = Beside(store.disk, store.bay.cleanup)
    assert verdict_of(disk).findings == ()
    assert disk.listings == 2
    assert min(facts.data_log for facts in examine_all(store.disk)) > 1


def test_data_log_that_is_listed_and_never_there_is_named_after_three_more_listings() -> None:
    disk: Any = Beside(two_data_logs(), lambda: None, phantom="data-3.log")
    [finding] = verdict_of(disk).findings
    assert places((finding,)) == [(3, 0)] and "cannot be read" in finding.problem
    assert disk.listings == 1 + RELISTINGS_MAX
    rows = list(dump(disk))
    assert (rows[-1]["data_log"], rows[-1]["kind"]) == (3, "damaged")


class GoingOn:
    """A disk whose first data log was not finished when it was looked at, and is when somebody has seen the second."""

    def __init__(self, before: Disk, after: Disk) -> None:
        self._now = after
        self.disk = before

    def list(self, directory: str) -> list[str]:
        return self._now.list(directory)

    def open_for_reading(self, name: str) -> File:
        if name == data_log_name(2):
            self.disk = self._now
        return cast(File, FileGoingOn(self, name))


class FileGoingOn:
    def __init__(self, going_on: GoingOn, name: str) -> None:
        self._going_on, self._name = going_on, name

    def read(self, offset: int, length: int) -> bytes:
        return self._going_on.disk.open_for_reading(self._name).read(offset, length)

    def size(self) -> int:
        return self._going_on.disk.open_for_reading(self._name).size()

    def close(self) -> None: ...


def test_verify_looks_again_at_what_was_written_while_it_looked() -> None:
    disk, before = two_data_logs(), two_data_logs()
    last = records(before, 1)[-2][0]
    before.zero(data_log_name(1), last, before.open_for_reading(data_log_name(1)).size() - last)
    assert [finding.offset for finding in verdict_of(before).findings] == [last]
    journal = list(examine_all(cast(Disk, GoingOn(before, disk))))
    assert [facts.data_log for facts in journal] == [1, 2]
    assert judge(journal).findings == ()


def test_data_log_that_went_before_the_second_look_is_not_missed() -> None:
    """Its deletion is written behind what was already read of the next one."""
    store = small_bay(1)
    queue = store.queue()
    queue.send_many(Message(bytes(2_000)) for _ in range(5))

    def examine_beside_owner(data_log: int, file: File | OSError) -> DataLogFacts:
        facts = examine(data_log, file)
        if data_log == 1 and not facts.is_sealed:
            while not store.disk.exists(data_log_name(2)):
                queue.send_many(Message(bytes(2_000)) for _ in range(8))
        elif data_log == 2:
            with queue.subscribe(prefetch=0) as consumer:
                consumer.ack(consumer.take(100, timeout=0))
            store.bay.checkpoint()
            store.bay.cleanup()
        return facts

    journal = list(examine_all(cast(Disk, Beside(store.disk, lambda: None, "data-2.log")), examine_beside_owner))
    assert not store.disk.exists(data_log_name(1))
    assert [facts.data_log for facts in journal] == [1, 2]
    assert judge(journal).findings == ()
