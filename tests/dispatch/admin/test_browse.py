"""Browse: everything pending, in order, at any depth, in bounded memory, and nobody notices."""

from __future__ import annotations

import gc
import logging
from collections.abc import Generator, Iterator
from random import Random
from typing import Any

import pytest
from delivering import numbers
from sampling import sampled
from simulated_bay import SimulatedBay

from forebay import Closed, Delivery, Message, Queue, SelectorError, SettingsError
from forebay.dispatch.admin import browse as browser
from forebay.store.disk.layout import data_log_name


def filled(count: int, body_bytes: int = 20, **fields: Any) -> SimulatedBay:
    simulated = SimulatedBay(**fields)
    simulated.queue().send_many(
        Message(b"%0*d" % (body_bytes, n), headers={"n": n, "odd": n % 2 == 1}) for n in range(count)
    )
    return simulated


def held_by_browsers(simulated: SimulatedBay) -> int:
    return simulated.bay.statistics().memory.holders["browsers"]


def test_every_pending_message_comes_as_it_was_sent_with_its_id() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    own = queue.send(b"1", headers={"kg": 1.5, "raw": b"x"}, priority=7)
    foreign = queue.send(b"2", message_id="order-2")
    first, second = queue.browse()
    assert (first.body, first.headers, first.priority, first.message_id) == (b"1", {"kg": 1.5, "raw": b"x"}, 7, own)
    assert (second.body, second.headers, second.priority, second.message_id) == (b"2", {}, 4, foreign)


def test_empty_queue_has_nothing_to_browse() -> None:
    assert list(SimulatedBay().queue().browse()) == []


def test_order_is_priority_then_arrival() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send_many(Message(b"%d" % n, priority=n % 10) for n in range(2000))
    expected = sorted(range(2000), key=lambda n: (-(n % 10), n))
    assert numbers(queue.browse()) == expected


def test_consumers_notice_nothing_and_what_is_in_flight_is_seen() -> None:
    simulated = filled(1200)
    queue = simulated.queue()
    with queue.subscribe() as consumer:
        held = consumer.take(10)
        consumer.nack(held[4:6])
        consumer.nack(held[6], delay=60.0)
        consumer.ack(held[9])
        before = simulated.bay.statistics()
        assert numbers(queue.browse()) == [n for n in range(1200) if n != 9]
        after = simulated.bay.statistics()
        assert after.destinations == before.destinations
        assert after.memory.holders == before.memory.holders
        assert [delivery.attempts for delivery in consumer.take(3)] == [2, 2, 1]
        simulated.check()


def test_selector_is_asked_at_any_depth() -> None:
    simulated = filled(3000)
    simulated.reopen()
    queue = simulated.queue()
    assert numbers(queue.browse("n >= 2990 AND odd")) == [2991, 2993, 2995, 2997, 2999]
    assert numbers(queue.browse(selector="JMSPriority = 9")) == []


@pytest.mark.parametrize("selector, error", [("n >=", SelectorError), (7, SettingsError)])
def test_bad_selector_is_refused_at_once(selector: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        SimulatedBay().queue().browse(selector)


def test_twenty_thousand_messages_of_1_kib_stay_within_4_mib() -> None:
    simulated = filled(20_000, 1024, sync="never")
    queue = simulated.queue()
    with queue.subscribe() as consumer:
        consumer.take(200)
        limit = simulated.budget.limit_bytes
        held_max, count = 0, 0
        for n, message in enumerate(queue.browse()):
            assert int(message.body) == n
            count += 1
            if not n % 100:
                simulated.audit()
                held_max = max(held_max, held_by_browsers(simulated))
                # What consumers do meanwhile is no hindrance.
                consumer.nack(consumer.take(1))
        assert count == 20_000
        assert 0 < held_max <= limit // 16
        assert held_by_browsers(simulated) == 0
        assert simulated.budget.held_bytes_max <= limit
        simulated.check()


def test_charge_is_what_one_load_takes() -> None:
    simulated = filled(600, 100)
    simulated.reopen()
    messages = simulated.queue().browse()
    next(messages)
    assert 512 * (100 + 384) < held_by_browsers(simulated) < (1 << 20)
    assert numbers(messages)[-1] == 599
    assert held_by_browsers(simulated) == 0


@pytest.mark.parametrize("free_bytes, least", [(20_000, 1000), (0, 0)])
def test_with_little_free_memory_loads_are_small_and_without_any_it_goes_on(free_bytes: int, least: int) -> None:
    simulated = filled(600, 1000)
    simulated.reopen()
    other = simulated.budget.holder("other")
    with simulated.lock:
        assert other.reserve(simulated.budget.free_bytes - free_bytes)
    found: list[Message] = []
    charges: list[int] = []
    for message in simulated.queue().browse():
        found.append(message)
        charges.append(held_by_browsers(simulated))
    assert numbers(found) == list(range(600))
    assert least <= min(charges) and max(charges) <= free_bytes
    simulated.check()


def test_while_others_use_all_that_may_be_read_at_once_it_goes_on() -> None:
    simulated = filled(600, 1000)
    simulated.reopen()
    reading, other = simulated.budget.holders["read_buffers"], simulated.budget.holder("other")
    with simulated.lock:
        assert reading.reserve(1 << 19)
        # Room for messages, and none for a buffer beside them.
        assert other.reserve(simulated.budget.free_bytes - 10_000)
    assert numbers(simulated.queue().browse()) == list(range(600))
    assert held_by_browsers(simulated) == 0
    simulated.check()


def test_message_larger_than_the_window_comes_too() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    large = bytes(3 << 20)
    queue.send_many([Message(b"1"), Message(large), Message(b"3")])
    simulated.reopen()
    assert [message.body for message in simulated.queue().browse()] == [b"1", large, b"3"]
    simulated.check()


def test_what_is_in_ram_is_not_read_again() -> None:
    simulated = filled(400)
    reads = simulated.reads
    assert numbers(simulated.queue().browse()) == list(range(400))  # from the HeadQueueCache
    with simulated.queue().subscribe() as consumer:
        held = consumer.take(50)
        simulated.bay.step()
        assert numbers(simulated.queue().browse()) == list(range(400))  # from the DispatchArea and the list
        consumer.nack(held)
        assert numbers(simulated.queue().browse()) == list(range(400))  # from the PendingCache too
    assert simulated.reads == reads


def test_walk_that_is_given_up_gives_its_memory_back() -> None:
    simulated = filled(2000, 500)
    simulated.reopen()
    messages = simulated.queue().browse()
    next(messages)
    assert held_by_browsers(simulated) > 0
    messages.close()
    assert held_by_browsers(simulated) == 0


def test_walk_collected_while_its_thread_holds_the_lock_waits_for_nothing() -> None:
    """The collector may run anywhere, the state lock held or not."""
    simulated = filled(2000, 500)
    simulated.reopen()
    messages = simulated.queue().browse()
    next(messages)
    cycle: list[Any] = [messages]
    cycle.append(cycle)
    with simulated.lock:
        del messages, cycle
        gc.collect()
    assert held_by_browsers(simulated) > 0
    simulated.bay.step()
    assert held_by_browsers(simulated) == 0


def test_what_comes_after_the_beginning_does_not_make_it_endless() -> None:
    simulated = filled(10)
    queue = simulated.queue()
    found = []
    for message in queue.browse():
        found.append(int(message.body))
        queue.send(b"99")
    assert found == list(range(10))


def test_what_is_not_durable_yet_is_not_seen() -> None:
    simulated = filled(3, sync="always")
    queue = simulated.queue()
    with simulated.lock:
        lane = simulated.queue_state("orders").lanes[4]
        assert lane is not None
        simulated.store.message_store.add(lane.destination_lane, 0, b"", b"7")
    assert numbers(queue.browse()) == [0, 1, 2]


def test_closed_store_ends_a_browse() -> None:
    simulated = filled(2000, 500)
    queue = simulated.queue()
    messages = queue.browse()
    next(messages)
    simulated.bay.close()
    with pytest.raises(Closed):
        list(messages)
    with pytest.raises(Closed):
        queue.browse()


def test_message_that_cannot_be_read_is_passed_over_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    simulated = filled(10)
    ids = [message.message_id for message in simulated.queue().browse()]
    simulated.reopen()
    name = data_log_name(1)
    image = simulated.disk.image()[name]
    simulated.disk.flip_bit(name, image.index(b"%020d" % 6), 0)
    with caplog.at_level(logging.ERROR, browser.logger.name):
        assert numbers(simulated.queue().browse()) == [0, 1, 2, 3, 4, 5, 7, 8, 9]
    assert ids[6] is not None and ids[6] in caplog.text
    assert simulated.queue().depth == 10


@pytest.mark.parametrize("seed", sampled(range(20), 8))
def test_what_is_pending_throughout_appears_exactly_once_whatever_others_do(seed: int) -> None:
    random = Random(seed)
    simulated = SimulatedBay(seed, sync=random.choice(("always", "never")), max_file_length="64KiB")
    queue = simulated.queue()
    consumers = [queue.subscribe(selector=selector) for selector in random.choice(([None], [None, "n < 2"]))]
    held: list[Delivery] = []
    pending: dict[int, int] = {}
    number = 0
    walks: list[tuple[Generator[Message, None, None], set[int], list[int], bool]] = []
    for _ in range(150):
        action = random.choice(("send", "take", "take", "ack", "nack", "purge", "step", "begin", "walk", "walk"))
        if action == "send":
            numbers = range(number, number + random.choice((1, 30, 700)))
            number = numbers.stop
            priority = random.choice((4, 4, 9))
            body = bytes(random.choice((0, 600)))
            queue.send_many(
                Message(b"%d " % n + body, headers={"n": n % 3, "number": n}, priority=priority) for n in numbers
            )
            pending.update(dict.fromkeys(numbers, priority))
        elif action == "take":
            held += random.choice(consumers).take(random.choice((1, 20)))
        elif action in ("ack", "nack") and held:
            delivery = held.pop(random.randrange(len(held)))
            if action == "ack":
                gone = {int(delivery.headers["number"])}  # type: ignore[arg-type]
                delivery.ack()
                pending.pop(min(gone))
                for _, throughout, _, _ in walks:
                    throughout -= gone
            else:
                delivery.nack(delay=random.choice((0.0, 5.0)))
        elif action == "purge" and random.random() < 0.2:
            queue.purge()
            in_flight = {int(delivery.headers["number"]) for delivery in held}  # type: ignore[arg-type]
            pending = {n: pending[n] for n in in_flight}
            for _, throughout, _, _ in walks:
                throughout &= in_flight
        elif action == "begin" and len(walks) < 3:
            is_picky = random.random() < 0.5
            wanted = {n for n in pending if not is_picky or n % 3 == 1}
            walk = queue.browse("n = 1" if is_picky else None)
            found = [first] if (first := next_number(walk)) is not None else []
            walks.append((walk, wanted, found, is_picky))
        elif action == "walk" and walks:
            walk, throughout, found, _ = random.choice(walks)
            for _ in range(random.choice((1, 100, 1000))):
                if (n := next_number(walk)) is not None:
                    found.append(n)
        else:
            simulated.clock.advance(random.choice((0.1, 3.0)))
            simulated.bay.step()
        simulated.check()
    for walk, throughout, found, is_picky in walks:
        while (n := next_number(walk)) is not None:
            found.append(n)
        assert len(set(found)) == len(found)
        assert throughout <= set(found)
        assert not is_picky or all(n % 3 == 1 for n in found)
    everything = seen_numbers(queue)
    assert everything == sorted(pending, key=lambda n: (-pending[n], n))
    assert held_by_browsers(simulated) == 0


def next_number(walk: Iterator[Message]) -> int | None:
    message = next(walk, None)
    return int(message.body.split()[0]) if message is not None else None


def seen_numbers(queue: Queue) -> list[int]:
    return [int(message.body.split()[0]) for message in queue.browse()]
