"""use_vectored_io: one record and one write for a slice, or for each message."""

from __future__ import annotations

import pytest
from journals import all_records
from simulated_bay import SimulatedBay

from forebay import Message, StoreFull
from forebay.store.format.message_properties import encode_properties
from forebay.store.format.record import MESSAGE, SLICE_CONTENT_BYTES_MAX, SLICE_MESSAGES_MAX


@pytest.mark.parametrize(("use_vectored_io", "slices"), [(True, [10]), (False, [1] * 10)])
def test_a_batch_is_one_record_and_one_write_or_one_for_each_message(use_vectored_io: bool, slices: list[int]) -> None:
    bay = SimulatedBay(use_vectored_io=use_vectored_io)
    queue = bay.queue()
    before = bay.disk.calls["write"]
    ids = queue.send_many(Message(b"%d" % n, {"n": n}) for n in range(10))
    assert bay.disk.calls["write"] - before == len(slices)
    assert [record.header.entries for _, record in all_records(bay.disk) if record.header.kind == MESSAGE] == slices
    with queue.subscribe() as consumer:
        taken = consumer.take(10)
        assert [delivery.id for delivery in taken] == ids
        assert [delivery.body for delivery in taken] == [b"%d" % n for n in range(10)]
        consumer.ack(taken)
    bay.check()


def test_what_was_stored_before_the_disk_was_full_is_counted_by_message() -> None:
    bay = SimulatedBay(use_vectored_io=False, max_file_length="64KiB")
    queue = bay.queue()
    queue.send(b"first")
    bay.disk.capacity_bytes = sum(map(len, bay.disk.image().values()))
    with pytest.raises(StoreFull) as full:
        queue.send_many(Message(bytes(1000)) for _ in range(1000))
    assert 0 < full.value.stored < 1000
    assert queue.depth == 1 + full.value.stored


def test_a_list_that_is_cut_by_its_bytes_makes_full_slices() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    messages = [Message(bytes([number % 251]) * 1024, {"n": 200}) for number in range(500)]
    ids = queue.send_many(messages)
    fitting = SLICE_CONTENT_BYTES_MAX // (1024 + len(encode_properties({"n": 200})))
    slices = [record.header.entries for _, record in all_records(bay.disk) if record.header.kind == MESSAGE]
    assert slices == [fitting, 500 - fitting]
    with queue.subscribe() as consumer:
        taken = consumer.take(500)
        while len(taken) < 500:
            taken += consumer.take(500)
        assert [delivery.id for delivery in taken] == ids
        assert [delivery.headers for delivery in taken] == [message.headers for message in messages]
        assert [delivery.body for delivery in taken] == [message.body for message in messages]
        consumer.ack(taken)
    bay.check()


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([1] * 255 + [SLICE_CONTENT_BYTES_MAX] + [1] * 255, id="a large one behind small ones"),
        pytest.param([SLICE_CONTENT_BYTES_MAX - 9] + [1] * 300, id="a large one before small ones"),
        pytest.param([SLICE_CONTENT_BYTES_MAX + 1, 1, SLICE_CONTENT_BYTES_MAX], id="one above the limit"),
        pytest.param([20_000, 10, 70_000, 3_000] * 70, id="changing"),
        pytest.param(list(range(300)) + [60_000] * 9, id="growing"),
        pytest.param([60_000] * 9 + list(range(300)), id="large ones first"),
        pytest.param([1024] * 257, id="all of one size that fits exactly"),
        pytest.param([1025] * 257, id="all of one size that just does not fit"),
    ],
)
def test_a_slice_ends_before_the_first_message_that_has_no_room_in_it(sizes: list[int]) -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    queue.send_many([Message(bytes(size)) for size in sizes])
    expected: list[int] = []
    room = -1
    for size in sizes:
        if size > room or expected[-1] == SLICE_MESSAGES_MAX:
            expected.append(0)
            room = SLICE_CONTENT_BYTES_MAX
        expected[-1] += 1
        room -= size
    slices = [record.header.entries for _, record in all_records(bay.disk) if record.header.kind == MESSAGE]
    assert slices == expected


def test_what_a_slice_left_over_is_not_mixed_with_messages_of_another_priority() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    messages = [Message(b"%d" % number + bytes(1024), {"n": number}) for number in range(256)]
    messages += [Message(b"%d" % number + bytes(1024), {"n": number}, 9) for number in range(256, 300)]
    ids = queue.send_many(messages)
    assert len(set(ids)) == 300
    with queue.subscribe() as consumer:
        taken = consumer.take(300)
        while len(taken) < 300:
            taken += consumer.take(300)
    assert {delivery.headers["n"]: (delivery.id, delivery.priority) for delivery in taken} == {
        number: (ids[number], 4 if number < 256 else 9) for number in range(300)
    }
    bay.check()
