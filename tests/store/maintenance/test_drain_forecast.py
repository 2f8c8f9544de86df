"""Relocation leaves a data log to the consumer that is about to empty it."""

from __future__ import annotations

from simulated_bay import SimulatedBay

from forebay.store.index.data_log_use import DataLogUse
from forebay.store.maintenance.drain_forecast import SOON_SECONDS, DrainForecast


def uses(**pending: int) -> dict[int, DataLogUse]:
    found = {}
    for name, messages in pending.items():
        use = found[int(name.removeprefix("log"))] = DataLogUse()
        use.pending_messages = messages
    return found


def test_data_log_is_soon_empty_when_its_messages_leave_fast_enough() -> None:
    draining = DrainForecast(0.0)
    draining.sample(1.0, uses(log1=1000, log2=1000, log3=1000))
    assert draining.soon_empty == set()
    draining.sample(2.0, uses(log1=900, log2=910, log3=1000))
    assert 900 / 100 < SOON_SECONDS < 910 / 90
    assert draining.soon_empty == {1}


def test_data_log_that_nobody_drains_any_more_is_not_soon_empty() -> None:
    draining = DrainForecast(0.0)
    draining.sample(1.0, uses(log1=1000))
    draining.sample(2.0, uses(log1=10))
    assert draining.soon_empty == {1}
    draining.sample(3.0, uses(log1=10))
    assert draining.soon_empty == set()


def test_pace_is_measured_over_the_time_that_passed() -> None:
    draining = DrainForecast(0.0)
    draining.sample(0.0, uses(log1=1000))
    draining.sample(20.0, uses(log1=900))
    assert draining.soon_empty == set()


def drained_beside_sends(store: SimulatedBay, messages: int, batch: int) -> int:
    """A deep queue of small messages, as many taken as sent. Returns how many were copied meanwhile."""
    queue = store.queue()
    for _ in range(6 * messages // batch):
        for _ in range(batch):
            queue.send(b"small")
    consumer = queue.subscribe(prefetch=batch)
    relocation = store.relocation
    before = relocation.messages
    for _ in range(messages // batch):
        for _ in range(batch):
            queue.send(b"small")
        taken = consumer.take(batch)
        assert len(taken) == batch
        consumer.ack(taken)
        store.clock.advance(1.1)
        store.bay.step()
    store.check()
    return relocation.messages - before


def test_small_messages_are_not_copied_ahead_of_the_consumer_that_drains_them() -> None:
    store = SimulatedBay(max_file_length="64KiB", memory_limit="4MiB", sync="never")
    assert drained_beside_sends(store, 6_000, 150) < 600


def test_explicit_cleanup_copies_what_is_soon_empty_as_well() -> None:
    store = SimulatedBay(max_file_length="64KiB", memory_limit="4MiB", sync="never")
    queue = store.queue()
    for _ in range(4000):
        queue.send(b"small")
    consumer = queue.subscribe(prefetch=4000)
    for taken in (consumer.take(300), consumer.take(300)):
        consumer.ack(taken)
        store.clock.advance(1.1)
        store.bay.step()
    relocation = store.relocation
    assert relocation._draining.soon_empty
    draining = min(relocation._draining.soon_empty)
    store.bay.cleanup()
    assert draining not in store.journal.sizes
