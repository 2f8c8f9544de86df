"""A reader begins anywhere, goes on with what is sent, owes no acks, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from delivering import bodies
from loops import LoopBay, ticks
from simulated_bay import SimulatedBay
from staged_stores import newest, roll, small_bay

from forebay import ArgumentError, Closed, DestinationPolicy, Message, Topic, aio
from forebay.dispatch.aio.loop import WORK_A_TURN, WORK_OF_A_CALL, WORK_OF_A_SENT_MESSAGE
from forebay.store.index.sequence_bitmap import MASKS_STEP_BYTES

HOUR = 3600.0
TAKEN = 512


def retaining(seconds: float = HOUR, **fields: Any) -> SimulatedBay:
    return small_bay(policies={"prices": DestinationPolicy(retain_seconds=seconds)}, **fields)


def numbered(topic: Topic, *numbers: int, **fields: Any) -> None:
    topic.send_many(Message(b"%d" % number, **fields) for number in numbers)


def test_reader_gets_what_exists_and_then_what_is_sent() -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    numbered(topic, *range(700))
    with topic.reader("begin") as reader:
        found: list[bytes] = []
        while taken := reader.take(1000):
            found += bodies(taken)
        assert found == [b"%d" % n for n in range(700)]
        numbered(topic, 700)
        assert bodies(reader.take(1000)) == [b"700"]
        bay.check()
    bay.check()


def test_reader_begins_at_the_end_a_sequence_or_a_time() -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    begin = bay.clock.time_ms() / 1000
    for number in range(10):
        numbered(topic, number)
        bay.clock.advance(1)
    with topic.reader("end") as end, topic.reader(sequence=7) as third, topic.reader(time=begin + 5) as half:
        assert end.take(10) == []
        assert bodies(third.take(10)) == [b"7", b"8", b"9"]
        assert bodies(half.take(10)) == [b"%d" % n for n in range(5, 10)]
        numbered(topic, 10, priority=1)
        assert bodies(end.take(10)) == bodies(third.take(10)) == bodies(half.take(10)) == [b"10"]
    with pytest.raises(ArgumentError, match="from_"):
        topic.reader()


def test_reader_finds_what_others_wait_for_without_retention() -> None:
    bay = small_bay()
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    numbered(topic, 1, 2)
    with topic.reader("begin") as reader:
        assert bodies(reader.take(10)) == [b"1", b"2"]
    assert topic.statistics().subscriptions["audit"].depth == 2


def test_selector_leaves_out_what_does_not_match() -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    topic.send_many(Message(b"%d" % n, headers={"n": n}) for n in range(6))
    with topic.reader("begin", selector="n > 3") as reader:
        assert bodies(reader.take(10)) == [b"4", b"5"]


def test_body_can_be_read_until_the_next_take_and_settling_it_oneself_is_no_error() -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    numbered(topic, 1, 2)
    with topic.reader("begin") as reader:
        [first] = reader.take(1)
        first.ack()
        [second] = reader.take(1)
        assert second.body == b"2"
        assert reader.take(1) == []


def test_message_that_is_not_durable_yet_comes_when_it_is() -> None:
    bay = retaining(sync="always")
    topic = bay.bay.topic("prices")
    numbered(topic, 0)
    lane = bay.topic_state().lanes[4]
    assert lane is not None
    with bay.lock:
        sequence = bay.store.message_store.add(lane.destination_lane, 0, b"", b"1")
        bay.hold_unsynced(lane, ((sequence, b"", b"1", 0),))
    with topic.reader("begin") as reader:
        assert bodies(reader.take(10)) == [b"0", b"1"]


def test_closed_reader_leaves_nothing_on_disk_or_in_memory() -> None:
    bay = retaining(seconds=1.0)
    topic = bay.bay.topic("prices")
    topic.reader("end").close()
    charged = bay.bay.statistics().memory.holders
    for number in range(3):
        numbered(topic, number)
        roll(bay)
    charged |= {"destinations": bay.bay.statistics().memory.holders["destinations"]}  # with the lane
    readers = [topic.reader("begin") for _ in range(50)]
    bay.clock.advance(5)
    assert len(bay.bay.cleanup().remaining) == 4
    for at, reader in enumerate(readers):
        reader.take(at % 3 + 1)
        reader.close()
        reader.close()
        with pytest.raises(Closed):
            reader.take(1)
    assert set(bay.bay.cleanup().remaining) == {newest(bay)}
    after = bay.bay.statistics().memory.holders
    assert after["target_lists"] == charged["target_lists"]
    # The difference is what retention has let go of since.
    assert 0 <= after["destinations"] - charged["destinations"] <= 2 * MASKS_STEP_BYTES
    bay.check()


def test_no_limit_of_slow_subscribers_takes_from_a_reader() -> None:
    policy = DestinationPolicy(retain_seconds=HOUR, subscriber_max_messages=5)
    bay = small_bay(policies={"prices": policy})
    topic = bay.bay.topic("prices")
    numbered(topic, *range(100))
    with topic.reader("begin") as reader:
        numbered(topic, *range(100, 150))
        assert len(reader.take(1000)) == 150
    assert topic.statistics().evicted == 0


def test_reader_ends_with_a_crash_and_nothing_is_owed() -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    numbered(topic, 1)
    topic.reader("begin").take(1)
    bay.crash()
    with bay.bay.topic("prices").reader("begin") as reader:
        [delivery] = reader.take(10)
        assert delivery.attempts == 1
    bay.check()


def test_iteration_waits_and_ends_with_the_reader() -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    numbered(topic, *range(250))
    reader = topic.reader("begin")
    found: list[bytes] = []

    def read() -> None:
        found.extend(message.body for message in reader)

    thread = threading.Thread(target=read)
    thread.start()
    while len(found) < 250:
        pass
    numbered(topic, 250)
    while len(found) < 251:
        pass
    topic.delete()
    thread.join(30)
    assert not thread.is_alive() and found == [b"%d" % n for n in range(251)]


def test_in_a_loop_a_reader_reads_waits_and_ends() -> None:
    async def main() -> None:
        bay = LoopBay(policies={"prices": DestinationPolicy(retain_seconds=HOUR)})
        topic = await bay.aio.topic("prices")
        for number in range(3):
            await topic.send(b"%d" % number)
        found: list[bytes] = []

        async def read() -> None:
            async for message in reader:
                found.append(message.body)

        async with topic.reader(sequence=1) as reader:
            assert [message.body for message in await reader.take(1)] == [b"1"]
            reading = asyncio.create_task(read())
            await ticks()
            await topic.send(b"3")
            await ticks()
        await reading
        assert found == [b"2", b"3"]
        bay.check()

    asyncio.run(main())


async def nearly_end_turn(topic: aio.Topic) -> None:
    """After a take of TAKEN messages, do as much as lets the next call give way to other tasks."""
    left = WORK_A_TURN - (TAKEN + WORK_OF_A_CALL)
    for _ in range((left - 1) // WORK_OF_A_SENT_MESSAGE):
        await topic.send(b"late")
    assert (left - 1) % WORK_OF_A_SENT_MESSAGE < WORK_OF_A_CALL


def test_in_a_loop_a_reader_whose_take_is_cancelled_settles_with_the_next_one() -> None:
    async def main() -> None:
        bay = LoopBay(policies={"prices": DestinationPolicy(retain_seconds=HOUR)}, memory_limit="64MiB")
        topic = await bay.aio.topic("prices")
        await topic.send_many(Message(b"%d" % number) for number in range(2 * TAKEN))
        async with topic.reader("begin") as reader:
            first = await reader.take(TAKEN)
            await nearly_end_turn(topic)
            following = asyncio.create_task(reader.take(1))
            await ticks(1)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            assert following.cancelled() and first[0].is_owed
            assert [message.body for message in await reader.take(1)] == [b"%d" % TAKEN]
            assert not any(message.is_owed for message in first)
        bay.check()

    asyncio.run(main())


def test_in_a_loop_a_reader_may_be_closed_while_its_take_settles() -> None:
    async def main() -> None:
        bay = LoopBay(policies={"prices": DestinationPolicy(retain_seconds=HOUR)}, memory_limit="64MiB")
        topic = await bay.aio.topic("prices")
        await topic.send_many(Message(b"%d" % number) for number in range(2 * TAKEN))
        reader = await topic.reader("begin").__aenter__()
        assert len(await reader.take(TAKEN)) == TAKEN
        await nearly_end_turn(topic)
        following = asyncio.create_task(reader.take(1))
        await ticks(1)
        await reader.close()
        with pytest.raises(Closed):
            await following
        bay.check()

    asyncio.run(main())


def test_open_reader_holds_nothing_that_it_has_read() -> None:
    bay = retaining(seconds=1.0)
    topic = bay.bay.topic("prices")
    for number in range(3):
        numbered(topic, number)
        roll(bay)
    with topic.reader("begin") as reader:
        bay.clock.advance(5)
        for _ in range(4):
            reader.take(1)
        assert set(bay.bay.cleanup().remaining) == {newest(bay)}
