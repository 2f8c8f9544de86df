"""What the pipeline says of a journal is what opening it finds, whatever a crash left."""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from closed_stores import place_of, rewrite, small_bay, two_data_logs
from compiled import interpreted
from inside import inside, open_forebay
from journals import data_logs
from pipeline_stores import damaged, random_stores, written
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

import forebay
from forebay import DestinationPolicy, Forebay, ForebayError, JournalCorrupt, Message, Settings
from forebay.dispatch.explain.disk import explain_data_log
from forebay.pipeline import local
from forebay.pipeline.kernels.fleet import Store, find_stores, plan
from forebay.pipeline.spark.questions import problems_of
from forebay.store.disk.layout import data_log_name
from forebay.store.format.places import SingleRecords
from forebay.store.format.record import LOST_BYTES, MESSAGE, encode_lost
from forebay.store.index.block import Block
from forebay.store.inspect.read_only import ReadOnlyStore, open_read_only
from forebay.store.journal.data_log import (
    DATA_LOG_HEADER_BYTES,
    DataLogHeader,
    decode_data_log_header,
    encode_header,
)
from forebay.store.journal.scan import open_data_logs
from forebay.store.recovery.verify import DataLogFacts, examine, judge
from forebay.testing import ManualClock

HERE = Store("localhost", "")


def opened(image: SimulatedDisk) -> Forebay:
    """The store, its index made from the journal alone."""
    image.capacity_bytes = 1 << 40
    settings = Settings(background=False, memory_limit="8MiB", index_cache_size="256KiB", max_file_length="64KiB")
    return open_forebay(image, SimulatedMetadataStore(), settings, ManualClock(1))


def without_index(image: SimulatedDisk) -> SimulatedDisk:
    image = image.crash_process()
    for name in ("kr-store/state/mark",):
        if image.exists(name):
            image.remove(name)
    return image


def blocks_of(bay: Forebay) -> dict[tuple[int, int], bytes]:
    index = inside(bay).index
    return {
        (number, block): index.cache.peek(lane, block).pack()
        for number, lane in index.lanes.items()
        for first, last in lane.block_numbers
        for block in range(first, last + 1)
        if index.cache.peek(lane, block).pending_messages
    }


def places(packed: bytes) -> dict[int, tuple[int, int, int]]:
    """Return data log, offset and length of each pending message of a block, by its index.

    A store that is opened deletes a data log that a DROP record names, and knows no more of what was there.
    """
    block = Block.unpack(0, packed)
    found: dict[int, tuple[int, int, int]] = {}
    for index, length in enumerate(block.lengths):
        if not block.gone >> index & 1:
            [extent] = block.extents(index, index)
            offset = extent.offsets[0] if isinstance(extent, SingleRecords) else extent.offset
            found[index] = (extent.data_log, offset, length)
    return found


def test_rebuilt_index_is_the_one_that_opening_makes() -> None:
    blocks = 0
    for image in random_stores(range(70, 90)):
        rows = local.index_of(HERE, image)
        own = blocks_of(opened(without_index(image)))
        assert {(row.lane, row.block): places(row.packed) for row in rows} == {at: places(own[at]) for at in own}
        assert [(row.lane, row.block) for row in rows] == sorted(own)
        blocks += len(own)
    assert blocks > 100


def test_pins_are_those_of_each_data_log() -> None:
    reasons: Counter[str] = Counter()
    for image in random_stores(range(150, 158)):
        seen = open_read_only(image)
        rows = local.pins_of(HERE, image, 0)
        for data_log in seen.sizes:
            own = explain_data_log(data_log, 0, seen.retention_reasons.of(data_log), 0).causes
            found = [row for row in rows if row.data_log == data_log]
            assert [(row.reason, row.holder, row.messages, row.bytes, row.frees) for row in found] == [
                (cause.reason, cause.holder, cause.messages, cause.bytes, cause.frees) for cause in own
            ]
            reasons.update(cause.reason for cause in own)
    assert {"pending_message", "ack", "in_use"} <= set(reasons)


def test_backlog_is_what_the_open_store_counts() -> None:
    seen: Counter[bool] = Counter()
    for image in random_stores(range(90, 115)):
        rows = local.backlog_of(HERE, image, 0)
        statistics = opened(without_index(image)).statistics()
        queues = {row.destination: (row.messages, row.bytes) for row in rows if row.subscription is None}
        own = {name: (found.depth, found.bytes) for name, found in statistics.destinations.items()}
        assert {name: held for name, held in queues.items() if held[0]} == {
            name: held for name, held in own.items() if held[0]
        }
        for row in rows:
            seen[row.subscription is None] += bool(row.messages)
            if row.subscription is not None:
                assert row.destination is not None
                topic = statistics.topics[row.destination]
                assert topic.subscriptions[row.subscription].depth == row.messages
            assert (row.oldest_seconds is None) == (not row.messages)
    assert min(seen[True], seen[False]) > 5


@interpreted("replaces a function of the module")
def test_backlog_tells_no_age_where_the_data_log_was_deleted_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    bay = small_bay()
    bay.queue("orders").send(b"12345")
    disk = bay.disk.crash_process()

    def then_deleted(disk: SimulatedDisk) -> ReadOnlyStore:
        seen = open_read_only(disk)
        disk.remove(data_log_name(1))
        return seen

    monkeypatch.setattr(local, "open_read_only", then_deleted)
    [row] = local.backlog_of(HERE, disk, 0)
    assert (row.destination, row.messages, row.bytes, row.oldest_seconds) == ("orders", 1, 5, None)


@interpreted("replaces a function of the module")
@pytest.mark.parametrize(("call", "error"), [("open", errno.EMFILE), ("open", errno.EACCES), ("read", errno.EIO)])
def test_backlog_that_the_disk_refuses_to_read_is_an_error_and_not_a_deletion(
    call: str, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bay = small_bay()
    bay.queue("orders").send(b"12345")

    def then_refused(disk: SimulatedDisk) -> ReadOnlyStore:
        seen = open_read_only(disk)
        disk.fail(call, 1, error, sticky=True)
        return seen

    monkeypatch.setattr(local, "open_read_only", then_refused)
    with pytest.raises(OSError, match=re.escape(os.strerror(error))):
        local.backlog_of(HERE, bay.disk.crash_process(), 0)


class CountedWalks(dict[Any, Any]):
    """A dict that counts how often somebody goes through its values."""

    walks = 0

    def values(self) -> Any:
        self.walks += 1
        return super().values()


@interpreted("replaces a function of the module")
def test_backlog_goes_through_the_lanes_once_however_many_queues_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    bay = small_bay()
    for n in range(5):
        bay.queue(f"orders.{n}").send(b"%d" % n, priority=n)
        bay.queue(f"orders.{n}").send(b"%d" % n, priority=9)
    seen = open_read_only(bay.disk.crash_process())
    lanes = CountedWalks(seen.index.lanes)
    monkeypatch.setattr(seen.index, "lanes", lanes)
    monkeypatch.setattr(local, "open_read_only", lambda disk: seen)
    rows = local.backlog_of(HERE, bay.disk, 0)
    assert [(row.destination, row.messages) for row in rows] == [(f"orders.{n}", 2) for n in range(5)]
    assert lanes.walks == 1


def test_what_opens_is_read_whole_and_what_does_not_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    random = Random(5)
    outcomes: Counter[str] = Counter()
    for n, image in enumerate(random_stores(range(110, 130))):
        if not data_logs(image):
            continue
        directory = written(image, tmp_path / str(n))
        facts = facts_by_id(directory)
        bay = opened(without_index(image))
        for name in bay.destinations():
            for message in bay.queue(name).browse():
                # Of a transaction, the rows of the commit tell its number.
                outcomes["message" if facts[message.message_id or ""] else "in a transaction"] += 1
        hurt = damaged(image, random)
        try:
            opened(without_index(hurt))
        except JournalCorrupt:
            outcomes["refused"] += 1
            with pytest.raises(ForebayError):
                local.pins_of(HERE, hurt, 0)
            assert local.check(str(written(hurt, tmp_path / f"hurt-{n}")))
    assert outcomes["message"] > 50 and outcomes["refused"] > 5
    assert outcomes["message"] > 2 * outcomes["in a transaction"]


def facts_by_id(directory: Path) -> Counter[str]:
    return Counter(
        row["message_id"]
        for batch in local.facts(str(directory), relocated=True)
        for row in batch.to_pylist()
        if row["kind"] in ("message", "relocate") and row["message_id"] is not None
    )


def test_plan_leaves_out_what_was_dropped_and_names_what_is_missing() -> None:
    for image in random_stores(range(130, 136)):
        before = data_logs(image)
        if len(before) < 3:
            continue
        parts = plan(image)
        assert [part.data_log for part in parts if part.problem is None] == [
            part.data_log for part in parts if part.data_log in before
        ]
        assert not [part for part in parts if part.problem]
        needed = [part.data_log for part in parts[:-1]]
        if needed:
            gone = image.crash_process()
            gone.remove(f"journal/data-{needed[0]}.log")
            [missing] = [part for part in plan(gone) if part.problem]
            assert missing.data_log == needed[0]


def test_plan_goes_on_behind_records_that_a_repair_says_are_lost() -> None:
    bay = small_bay(3)
    while len(data_logs(bay.disk)) < 4:
        bay.queue().send_many(Message(bytes(2_000)) for _ in range(8))
    image = bay.disk.crash_process()
    _, lost, behind, _ = data_logs(image)
    header, next_header = header_of(image, lost), header_of(image, behind)
    first, records = header.first_log_sequence, next_header.first_log_sequence - header.first_log_sequence
    record = encode_lost(header.salt, first, header.epoch, records, LOST_BYTES)
    rewrite(image, data_log_name(lost), encode_header(header) + record)
    assert [(part.data_log, part.problem) for part in plan(image)] == [(each, None) for each in data_logs(image)]


def header_of(image: SimulatedDisk, data_log: int) -> DataLogHeader:
    return decode_data_log_header(image.open_for_reading(data_log_name(data_log)).read(0, DATA_LOG_HEADER_BYTES))


def test_each_store_is_found_once_however_it_is_named(tmp_path: Path) -> None:
    [image] = list(random_stores(range(140, 141), images_max=0))
    written(image, tmp_path / "east", "a")
    written(image, tmp_path / "west", "b")
    everything = [str(tmp_path / "east"), str(tmp_path / "east" / "a"), str(tmp_path / "*"), str(tmp_path / "west")]
    assert [store.broker for store in find_stores(everything)] == ["a", "b"]
    assert [store.broker for store in find_stores(str(tmp_path / "*" / "b"))] == ["b"]


class Tasks:
    """A store whose data logs are examined one by one, in any order, while its owner goes on."""

    def __init__(self, seed: int, sync: str) -> None:
        self._random = Random(seed)
        self._store = small_bay(seed, sync=sync)
        self.disk = self._store.disk
        while len(data_logs(self.disk)) < 4:
            self._store.queue().send_many(Message(bytes(2_000)) for _ in range(8))

    def _work(self) -> None:
        random, queue = self._random, self._store.queue()
        for _ in range(random.randrange(4)):
            queue.send_many(Message(bytes(2_000)) for _ in range(8))
        with queue.subscribe(prefetch=0) as consumer:
            consumer.ack(consumer.take(random.randrange(1, 40), timeout=0))
        self._store.bay.cleanup()

    def damage(self) -> int:
        """Turn a bit over in a data log that is not the newest; its number."""
        data_log = self._random.choice(data_logs(self.disk)[:-1])
        self.disk.flip_bit(data_log_name(data_log), self._random.randrange(64, 50_000), self._random.randrange(8))
        assert {problem.data_log for problem in local.check_store(HERE, self.disk)} == {data_log}
        return data_log

    def run(self) -> dict[int, DataLogFacts]:
        planned = data_logs(self.disk)
        self._random.shuffle(planned)
        found: dict[int, DataLogFacts] = {}
        for data_log in planned:
            for number, file in islice(open_data_logs(self.disk, data_log - 1), 1):
                if number == data_log:
                    found[number] = examine(number, file)
            self._work()
        return found


def test_data_logs_examined_at_any_time_beside_their_owner_are_judged_as_one_journal() -> None:
    hasty = 0
    for seed in range(100):
        tasks = Tasks(seed, ("always", "interval", "never")[seed % 3])
        found = tasks.run()
        hasty += bool(judge([found[data_log] for data_log in sorted(found)]).findings)
        assert problems_of(HERE, tasks.disk, found) == [], f"seed {seed}"
    assert hasty > 10


def test_damage_is_found_whenever_the_data_logs_beside_it_were_examined() -> None:
    stayed = 0
    for seed in range(100):
        tasks = Tasks(seed, "always")
        damaged_one = tasks.damage()
        found = tasks.run()
        problems = problems_of(HERE, tasks.disk, found)
        if damaged_one in data_logs(tasks.disk):
            stayed += 1
            assert {problem.data_log for problem in problems} == {damaged_one}, f"seed {seed}"
    assert stayed > 20


def test_damage_is_no_tail_because_the_record_that_knows_better_was_not_read() -> None:
    disk, found = two_data_logs(), {}
    disk.flip_bit(data_log_name(1), place_of(disk, 1, MESSAGE), 0)
    for data_log, file in open_data_logs(disk):
        found[data_log] = examine(data_log, file)
    [problem] = problems_of(HERE, disk, found)
    found[1].durable_end = found[2].durable_end = 0
    assert judge([found[1], found[2]]).findings == ()
    found[2].is_sealed = False
    assert problems_of(HERE, disk, found) == [problem]


def test_what_had_its_seal_is_not_examined_twice() -> None:
    disk = two_data_logs()
    found = {data_log: examine(data_log, file) for data_log, file in open_data_logs(disk)}
    found[1].add(77, "as it was found")
    assert problems_of(HERE, disk, found) == [local.Problem(HERE.broker, 1, 77, "as it was found")]


def test_backlog_counts_the_producers_whose_ids_count_once(tmp_path: Path) -> None:
    policies = {"orders": DestinationPolicy(duplicate_window=3), "prices": DestinationPolicy(duplicate_window=3)}
    for _ in range(2):  # the second time the first data log's state record tells of them
        with forebay.open(tmp_path, memory_limit="8MiB", sync="never", policies=policies) as bay:
            for producer in ("till 1", "till 2", "till 3", None):
                bay.queue("orders").send_many(Message(b"", message_id=f"{n}", producer=producer) for n in range(5))
            bay.queue("plain").send(b"", message_id="mine")
            bay.topic("prices").subscribe(durable="audit").close()
            bay.topic("prices").send_many([Message(b"", message_id="1", producer="till 1")])
    found = {(row.destination, row.subscription): row.producers for row in local.backlog(str(tmp_path))}
    assert found == {("orders", None): 4, ("plain", None): None, ("prices", "audit"): 1}


def test_facts_say_who_sent_a_message_until_when_it_is_of_use_and_what_came_back(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with forebay.open(tmp_path, memory_limit="8MiB", sync="never") as bay:
        orders = bay.queue("orders")
        orders.send_many(
            [
                Message(b"a", {"n": 1}, message_id="1", group="tea", producer="till", expires_in=60),
                Message(b"b", message_id="2"),
                Message(b"c", expires_in=60),
            ]
        )
        with orders.subscribe() as consumer:
            consumer.nack(consumer.take(1))
    for bodies in (False, True):
        rows = [row for batch in local.facts(str(tmp_path), bodies=bodies) for row in batch.to_pylist()]
        sent = [row for row in rows if row["kind"] == "message"]
        assert [(row["message_id"], row["producer"]) for row in sent[:2]] == [("1", "till"), ("2", None)]
        ages = [row["expires_at"] and (row["expires_at"] - row["timestamp"]).total_seconds() for row in sent]
        assert ages == [pytest.approx(60, abs=1), None, pytest.approx(60, abs=1)]
        (returned,) = [row for row in rows if row["kind"] == "return"]
        assert [returned[name] for name in ("destination", "priority", "sequence", "messages")] == ["orders", 4, 0, 1]
