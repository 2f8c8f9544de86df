"""A trace says what happened, in few bytes, whatever end it comes to; and nobody who is recorded notices it."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from random import Random

import pytest
from compiled import interpreted
from recorded_bays import RecordedBay, burst, competing, send, steady, take
from simulated_disk import SimulatedDisk

import forebay
from forebay import Message, SettingsError
from forebay.dispatch.planning import recorder
from forebay.dispatch.planning.recorder import new_trace
from forebay.store.disk.user_file import user_place
from forebay.store.format.trace import (
    ACK,
    ARRIVE,
    FULL_BYTES,
    GONE,
    KINDS,
    LIST,
    OFFER,
    RELEASED,
    TAKE,
    TICK,
    TRACE_BYTES,
    UNLIST,
    WAITING,
    Encoder,
    Event,
    TraceHeader,
    TraceReader,
)

HEADER = TraceHeader(64 << 20, 0, False)


def events_of(bay: RecordedBay, *kinds: int) -> list[Event]:
    return [event for event in TraceReader(bay.trace).events() if not kinds or event[0] in kinds]


def written(*blocks: bytes, header: bytes = HEADER.encode()) -> TraceReader:
    file = SimulatedDisk().open("trace", create=True)
    file.append(b"".join((header, *blocks)))
    return TraceReader(file)


def random_events(random: Random, count: int) -> list[Event]:
    def number() -> int:
        return random.getrandbits(random.choice((1, 7, 8, 20, 61)))

    return [(random.randrange(KINDS), random.randrange(1000), number(), number(), number()) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_events_come_back_as_they_were_put(seed: int) -> None:
    events = random_events(Random(seed), 10_000)
    encoder = Encoder()
    blocks: list[bytes] = []
    for event in events:
        encoder.put(*event)
        if encoder.is_full:
            blocks.append(encoder.block())
    blocks.append(encoder.block())
    reader = written(*blocks)
    assert len(blocks) > 1
    assert list(reader.events()) == events
    assert reader.unread_bytes == 0


def test_header_says_what_decides_about_memory() -> None:
    header = TraceHeader(123 << 20, 5 << 20, True)
    assert written(header=header.encode()).header == header


def test_torn_tail_costs_its_block_alone() -> None:
    encoder = Encoder()
    blocks = []
    for sequence in range(3):
        encoder.put(TAKE, 0, sequence, 1, 0)
        blocks.append(encoder.block())
    whole = b"".join(blocks)
    for cut in range(len(whole)):
        reader = written(whole[:cut])
        found = [event[2] for event in reader.events()]
        complete = sum(1 for last in range(1, 4) if cut >= sum(map(len, blocks[:last])))
        assert found == list(range(complete))
        assert reader.unread_bytes == cut - sum(map(len, blocks[:complete]))


def test_each_flipped_bit_ends_the_reading_and_changes_no_event() -> None:
    encoder = Encoder()
    blocks = []
    for sequence in range(2):
        encoder.put(ARRIVE, 3, 1000 * sequence, 7, 1024)
        blocks.append(encoder.block())
    expected = list(written(*blocks).events())
    whole = b"".join(blocks)
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        found = list(written(bytes(damaged)).events())
        assert found == expected[: int(bit // 8 >= len(blocks[0]))]


def test_blocks_do_not_verify_in_another_order() -> None:
    encoder = Encoder()
    encoder.put(TAKE, 0, 1, 1, 0)
    first = encoder.block()
    encoder.put(TAKE, 0, 2, 1, 0)
    assert not list(written(encoder.block(), first).events())


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"", "not a trace"),
        (b"something else that is long enough to be a header", "not a trace"),
        (HEADER.encode()[:8] + b"\7" + HEADER.encode()[9:], "version 7"),
        (HEADER.encode()[:20] + b"\7" + HEADER.encode()[21:], "damaged"),
    ],
)
def test_what_is_no_trace_is_refused(start: bytes, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        written(header=start)


def test_arrivals_takes_and_acks_are_recorded() -> None:
    bay = RecordedBay()
    queue = bay.queue()
    with queue.subscribe() as consumer:
        send(queue, 3, 100)
        send(queue, 2, 200)
        deliveries = consumer.take(4)
        consumer.ack(deliveries[:3])
        consumer.nack(deliveries[3])
        take(consumer, 2, batch=1)
        bay.pass_second()
    bay.bay.close()
    assert events_of(bay) == [
        (LIST, 0, 0, 0, 0),
        (ARRIVE, 0, 0, 3, 100),
        (ARRIVE, 0, 3, 2, 200),
        (TAKE, 0, 0, 4, 0),
        (ACK, 0, 0, 3, 0),
        (RELEASED, 0, 3, 1, 0),
        (OFFER, 0, 3, 1, 1),
        (TAKE, 0, 3, 1, 0),
        (ACK, 0, 3, 1, 0),
        (TAKE, 0, 4, 1, 0),
        (ACK, 0, 4, 1, 0),
        (TICK, 0, 1000, 0, 0),
        (UNLIST, 0, 0, 0, 0),
    ]


def test_what_waited_at_open_is_recorded_as_not_in_memory() -> None:
    bay = RecordedBay()
    send(bay.queue(), 5, 100)
    consumer = bay.queue().subscribe()
    consumer.ack(consumer.take(2))
    bay.bay.close()
    bay.trace_disk.remove("trace")
    bay.open_again()
    send(bay.queue(), 1, 70)
    bay.bay.close()
    assert events_of(bay) == [(WAITING, 0, 2, 3, 300), (ARRIVE, 0, 5, 1, 70)]


def test_purge_and_delete_are_recorded() -> None:
    bay = RecordedBay()
    send(bay.queue(), 5, 100)
    bay.pass_second()
    bay.queue().purge()
    send(bay.queue(), 2, 100)
    bay.pass_second()
    bay.queue().delete()
    bay.bay.close()
    gone = events_of(bay, GONE)
    assert gone[0] == (GONE, 0, 0, 5, 0)
    assert gone[1][2] == 0 and gone[1][3] >= 7


def test_arrivals_of_many_lanes_come_in_turns() -> None:
    bay = RecordedBay()
    for name in ("a", "b"):
        send(bay.queue(name), 1000, 10)
    bay.pass_second()
    bay.bay.close()
    lanes = [event[1] for event in events_of(bay, ARRIVE)]
    assert lanes[:6] == [0, 1, 0, 1, 0, 1]


def test_durable_subscription_is_recorded_from_its_consumer_on() -> None:
    bay = RecordedBay()
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    topic.send(b"1.20")
    with topic.subscribe(durable="audit") as audit:
        topic.send(b"1.25")
        audit.ack(audit.take(2))
    bay.bay.close()
    found = {event[0]: event[3] for event in events_of(bay, WAITING, ARRIVE, TAKE)}
    assert found == {WAITING: 1, ARRIVE: 1, TAKE: 2}


@pytest.mark.parametrize("traffic", [steady, burst, competing])
def test_an_event_takes_at_most_16_bytes(traffic: object) -> None:
    bay = RecordedBay()
    traffic(bay, Random(5))  # type: ignore[operator]
    bay.bay.close()
    events = events_of(bay)
    assert len(events) > 100
    assert bay.trace.size() <= 16 * len(events)


def test_no_byte_of_name_header_or_body_is_in_a_trace() -> None:
    bay = RecordedBay()
    with bay.queue("secret-name").subscribe(selector="secret = 'hidden'") as consumer:
        bay.queue("secret-name").send(b"secret-body", headers={"secret": "hidden"})
        take(consumer, 1)
    bay.bay.close()
    content = bay.trace.read(0, bay.trace.size())
    assert not any(word in content for word in (b"secret", b"hidden", b"body", b"name"))


def test_what_is_known_of_a_lane_goes_with_it_however_often_its_destination_is_closed() -> None:
    bay = RecordedBay()
    queue, topic = bay.queue(), bay.bay.topic("prices")
    held: list[int] = []
    for _ in range(3):
        queue.send(b"x")
        assert queue.get(0).body == b"x"
        with topic.subscribe() as consumer:
            topic.send(b"x")
            consumer.ack(consumer.take())
        bay.close_idle()
        held.append(bay.bay.statistics().memory.holders["trace"])
    assert held[0] == held[1] == held[2]
    bay.check()


def test_the_list_of_a_topic_that_is_deleted_under_a_pattern_is_not_charged_any_more() -> None:
    bay = RecordedBay()
    with bay.bay.topic("prices.*").subscribe() as consumer:
        held: list[int] = []
        for _ in range(3):
            topic = bay.bay.topic("prices.tea")
            topic.send(b"1.20")
            consumer.ack(consumer.take())
            topic.delete()
            held.append(bay.bay.statistics().memory.holders["trace"])
    assert held[0] == held[1] == held[2]
    bay.check()


def test_a_recording_that_has_ended_is_charged_for_no_lane_and_no_list() -> None:
    bay = RecordedBay()
    idle = bay.bay.statistics().memory.holders["trace"]
    consumer = bay.queue().subscribe()
    send(bay.queue(), 10, 100)
    assert bay.bay.statistics().memory.holders["trace"] > idle
    bay.trace_disk.capacity_bytes = 0
    bay.pass_second()
    bay.pass_second()
    assert bay.bay.statistics().memory.holders["trace"] == idle
    assert len(consumer.take(100)) == 10
    bay.check()


def test_full_disk_ends_the_recording_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    bay = RecordedBay()
    queue = bay.queue()
    consumer = queue.subscribe()
    bay.pass_second()
    assert bay.recorder is not None
    bay.trace_disk.fail("write", 1, errno.ENOSPC)
    with caplog.at_level(logging.WARNING, logger="forebay.dispatch.recorder"):
        for _ in range(5):
            send(queue, 100, 100)
            assert take(consumer, 100) == 100
            bay.pass_second()
    assert [record.name for record in caplog.records] == ["forebay.dispatch.recorder"]
    assert caplog.records[0].__dict__["event"] == "trace_ended"
    bay.bay.close()
    assert len(list(TraceReader(bay.trace).events())) < 10


@interpreted("replaces what compiled code has linked")
def test_what_waits_for_housekeeping_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "UNWRITTEN_BLOCKS_MAX", 3)
    bay = RecordedBay()
    queue = bay.queue()
    consumer = queue.subscribe()
    for _ in range(60):
        queue.send_many(Message(bytes(size)) for size in range(1000))
        take(consumer, 1000, batch=500)
    assert 60_000 * 4 - 3 * (1 << 16) < bay.trace.size()
    bay.bay.close()


def test_what_waits_to_be_written_is_charged_and_memory_that_is_full_is_written_at_once() -> None:
    bay = RecordedBay(memory_limit="4MiB")
    queue = bay.queue()
    queue.send_many(Message(bytes(size)) for size in range(1000))
    bay.watermarks.measure(1.0)
    holder, block_bytes = bay.budget.holders["trace"], FULL_BYTES
    known_bytes = holder.held_bytes
    assert known_bytes >= TRACE_BYTES
    bay.check()
    for _ in range(6):
        queue.send_many(Message(bytes(size)) for size in range(1000))
        bay.watermarks.measure(1.0)
    assert holder.held_bytes >= known_bytes + block_bytes and bay.trace.size() == 0
    bay.check()
    browsers = bay.budget.holders["browsers"]
    with bay.lock:
        bay.reclaim.make_room(bay.budget.limit_bytes, None)
        free_bytes = bay.budget.free_bytes
        assert browsers.reserve(free_bytes)
    for _ in range(6):
        queue.send_many(Message(bytes(size)) for size in range(1000))
        bay.watermarks.measure(1.0)
    assert bay.trace.size() > block_bytes and holder.held_bytes < known_bytes + block_bytes
    with bay.lock:
        browsers.release(free_bytes)
    bay.check()
    bay.bay.close()
    assert sum(event[3] for event in TraceReader(bay.trace).events() if event[0] == ARRIVE) == 13_000


def test_blocks_stay_in_order_when_two_come_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "UNWRITTEN_BLOCKS_MAX", 3)
    bay = RecordedBay()
    own = bay.recorder
    assert own is not None
    with own._writing:  # somebody is at it
        for _ in range(40):
            bay.queue().send_many(Message(bytes(size)) for size in range(1000))
            bay.watermarks.measure(1.0)
        assert 3 <= len(own._blocks) < 12
        assert bay.trace.size() == 0
    bay.bay.close()
    reader = TraceReader(bay.trace)
    assert sum(event[3] for event in reader.events() if event[0] == ARRIVE) == 40_000
    assert reader.unread_bytes == 0


@interpreted("replaces what compiled code has linked")
def test_disk_that_stands_still_ends_the_recording(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder, "UNWRITTEN_BLOCKS_MAX", 1)
    bay = RecordedBay()
    own = bay.recorder
    assert own is not None
    with own._writing:
        for _ in range(100):
            bay.queue().send_many(Message(bytes(size)) for size in range(1000))
            bay.watermarks.measure(1.0)
    assert not own._blocks
    bay.bay.close()
    assert [record.__dict__["event"] for record in caplog.records] == ["trace_ended"]


def test_store_records_where_it_is_told_and_keeps_the_last_trace(tmp_path: Path) -> None:
    path = tmp_path / "traffic"
    for bodies in (1, 2):
        with forebay.open(tmp_path / "data", memory_limit="8MiB", record_trace=str(path)) as bay:
            bay.queue("orders").send_many(Message(b"x") for _ in range(bodies))
    for name, arrived in ((path, 2), (tmp_path / "traffic.old", 1)):
        assert name.stat().st_mode & 0o777 == 0o600
        disk = user_place(name)[0]
        reader = TraceReader(disk.open_for_reading(name.name))
        assert sum(event[3] for event in reader.events() if event[0] == ARRIVE) == arrived
        assert reader.header.memory_limit_bytes == 8 << 20


def test_open_that_records_nothing_costs_no_earlier_trace(tmp_path: Path) -> None:
    path = tmp_path / "traffic"
    disk, name = user_place(path)
    for content in (HEADER.encode() + b"x", b"", HEADER.encode(), b""):
        new_trace(str(path)).append(content) if content else new_trace(str(path))
    assert (tmp_path / "traffic.old").read_bytes() == HEADER.encode() + b"x"
    assert disk.list("") == [name, "traffic.old"]


def test_another_file_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "letter"
    path.write_text("dear")
    with pytest.raises(SettingsError, match="is no trace"):
        forebay.open(tmp_path / "data", memory_limit="8MiB", record_trace=str(path))
    assert path.read_text() == "dear"
    with pytest.raises(SettingsError, match="can't be written"):
        new_trace(str(tmp_path / "nowhere" / "trace"))


def test_without_the_setting_nothing_is_in_the_way() -> None:
    from simulated_bay import SimulatedBay

    from forebay.dispatch.core.areas.target_area import TargetArea

    bay = SimulatedBay()
    assert type(bay.target_area) is TargetArea
    assert bay.recorder is None
