"""forebay.testing, as tests of those who use the library use it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import forebay
import forebay.testing
from forebay import Message
from forebay.testing import ManualClock, MemoryDisk, MemoryForebay

FIXTURE_TEST = """
from forebay.testing import bay

def test_one(bay):
    bay.queue("orders").send(b"x")

def test_other(bay):
    assert bay.queue("orders").depth == 0
    raise AssertionError(repr(bay))
"""


def test_a_store_in_memory_takes_no_thread_and_no_file() -> None:
    threads = threading.active_count()
    with MemoryForebay() as bay:
        assert isinstance(bay, forebay.Forebay)
        orders = bay.queue("orders")
        ids = orders.send_many([Message(str(number).encode()) for number in range(3000)])
        with orders.subscribe(prefetch=0) as consumer:
            taken = []
            while deliveries := consumer.take(1000):
                taken += [delivery.id for delivery in deliveries]
                consumer.ack(deliveries)
        assert taken == ids
        assert threading.active_count() == threads
        assert bay.disk.list("journal")
    assert bay.is_closed


def test_threads_work_where_a_test_asks_for_them() -> None:
    threads = threading.active_count()
    with MemoryForebay(background=True) as bay:
        assert threading.active_count() == threads + 2
        bay.queue("orders").send(b"x")
        assert bay.queue("orders").get(timeout=30.0).body == b"x"
    assert threading.active_count() == threads


def test_a_delayed_message_comes_when_the_test_lets_time_pass() -> None:
    with MemoryForebay() as bay:
        orders = bay.queue("orders")
        orders.send(b"later", delay=60.0)
        with orders.subscribe() as consumer:
            assert not consumer.take()
            bay.advance(59.0)
            assert not consumer.take()
            bay.advance(1.0)
            assert [delivery.body for delivery in consumer.take()] == [b"later"]


def test_waiting_takes_no_time_but_the_clocks() -> None:
    with MemoryForebay() as bay:
        orders = bay.queue("orders")
        with pytest.raises(forebay.Empty):
            orders.get(timeout=86_400.0)
        assert bay.clock.monotonic() == pytest.approx(86_400.0, abs=1.0)
        orders.send(b"later", delay=3600.0)
        assert not orders.join(timeout=10.0)
        assert orders.get(timeout=86_400.0).body == b"later", "a wait ends with what comes due meanwhile"
        assert bay.clock.monotonic() == pytest.approx(90_000.0, abs=60.0)


def test_a_send_that_waits_for_room_gives_up_in_the_clocks_time() -> None:
    limit = forebay.DestinationPolicy(max_messages=1, block_timeout_seconds=30.0)
    with MemoryForebay(policies={"orders": limit}) as bay:
        bay.queue("orders").send(b"x")
        with pytest.raises(forebay.StoreFull):
            bay.queue("orders").send(b"y")
        assert bay.clock.monotonic() == pytest.approx(30.0, abs=1.0)


def test_a_thread_that_waits_sees_the_time_that_another_lets_pass() -> None:
    with MemoryForebay(ManualClock()) as bay:
        found: list[object] = []
        consumer = bay.queue("orders").subscribe()
        waiting = threading.Thread(target=lambda: found.append(consumer.take(timeout=3600.0)))
        waiting.start()
        bay.clock.advance(3600.0)
        waiting.join(30.0)
        assert found == [[]]


def test_what_was_sent_is_there_after_a_reopen_and_after_a_kill() -> None:
    bay = MemoryForebay()
    for number in range(10):
        bay.queue("orders").send(str(number).encode())
    bay.queue("orders").get()
    killed, bay = bay.crash(), bay.reopen()
    for survivor in (killed, bay):
        assert survivor.queue("orders").depth == 9
        assert survivor.queue("orders").get().body == b"1"
        survivor.close()


def test_a_full_disk_can_be_tried() -> None:
    with MemoryForebay(disk=MemoryDisk(8 << 20), max_file_length="1MiB") as bay:
        with pytest.raises(forebay.StoreFull):
            while True:
                bay.queue("orders").send(bytes(1 << 19))
        assert bay.queue("orders").depth > 0
        bay.disk.capacity_bytes = 1 << 30
        bay.queue("orders").send(b"fits again")


def test_settings_are_checked_as_those_of_open() -> None:
    with pytest.raises(forebay.SettingsError, match="did you mean 'memory_limit'"):
        MemoryForebay(memory_limt="1GiB")  # type: ignore[call-arg]
    with MemoryForebay(sync="never") as bay:
        assert bay.settings.sync == "never" and not bay.settings.background
        with pytest.raises(forebay.SettingsError, match="seconds"):
            bay.advance(-1.0)


def test_it_works_in_an_event_loop() -> None:
    import asyncio

    import forebay.aio

    async def main() -> bytes:
        async with forebay.aio.Forebay(MemoryForebay()) as bay:
            orders = await bay.queue("orders")
            await orders.send(b"x")
            async with orders.subscribe() as consumer:
                [delivery] = await consumer.take(timeout=5.0)
                await delivery.ack()
                return delivery.body

    assert asyncio.run(main()) == b"x"


def test_the_fixture_gives_each_test_a_store_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(FIXTURE_TEST)
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    outcome = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in outcome.stdout and "<Forebay in memory open>" in outcome.stdout, outcome.stdout


def test_without_pytest_there_is_all_but_the_fixture() -> None:
    code = "import sys; sys.modules['pytest'] = None; import forebay.testing as t; print(*dir(t))"
    shown = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown.split() == ["ManualClock", "MemoryDisk", "MemoryForebay"]
    assert set(dir(forebay.testing)) == set(forebay.testing.__all__)
