"""What Python programmers expect of any library: reprs, a version, public names, a warning of what is left open."""

from __future__ import annotations

import asyncio
import gc
import warnings
from pathlib import Path

import pytest
from loops import LoopBay
from simulated_bay import SimulatedBay

import forebay
import forebay.aio
from forebay import Message

ROOT = Path(__file__).parents[2]
SECRET = "SECRET"


def test_the_version_is_that_of_the_package() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{forebay.__version__}"\n' in project


def test_a_repr_says_what_it_is_and_never_a_body_or_a_header(bay: SimulatedBay) -> None:
    queue, topic = bay.queue(), bay.bay.topic("prices")
    message = Message(SECRET.encode(), {"h": SECRET})
    queue.send_many([message])
    consumer = queue.subscribe()
    (delivery,) = consumer.take()
    shown = [repr(each) for each in (bay.bay, queue, topic, consumer, delivery, message, bay.bay.transaction())]
    assert shown[0] == "<Forebay in memory open>" and shown[3] == "<Consumer of 'orders' 1 in flight>"
    assert not [each for each in shown if SECRET in each or " object at 0x" in each]
    consumer.close()
    assert repr(consumer) == "<Consumer of 'orders' closed>"
    bay.bay.close()
    assert repr(bay.bay) == "<Forebay in memory closed>"


def test_a_repr_in_a_loop_says_the_same() -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        await queue.send(SECRET.encode())
        async with queue.subscribe() as consumer:
            (delivery,) = await consumer.take()
            shown = [repr(each) for each in (bay.aio, queue, await bay.aio.topic("t"), consumer, delivery)]
        assert shown[0] == "<Forebay in memory open>" and shown[3] == "<Consumer of 'orders' 1 in flight>"
        assert not [each for each in shown if SECRET in each or " object at 0x" in each]

    asyncio.run(main())


def test_a_store_that_nobody_closed_is_warned_of(tmp_path: Path) -> None:
    bay = forebay.open(tmp_path / "left", memory_limit="4MiB", background=False, sync="never")
    assert repr(bay).startswith("<Forebay '") and "left" in repr(bay)
    engine, lock = bay._engine, bay._lock
    with pytest.warns(ResourceWarning, match="left.*never closed"):
        del bay
        gc.collect()
    forebay.Forebay(engine, lock).close()


def test_a_finalizer_inside_a_section_warns_when_the_section_has_ended(tmp_path: Path) -> None:
    bay = forebay.open(tmp_path, memory_limit="4MiB", background=False, sync="never")
    queue, engine, lock = bay.queue("orders"), bay._engine, bay._lock
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with queue.monitor.lock:
            del bay
            gc.collect()
            assert not caught, "nobody's code is called under the lock"
        queue.send(b"x")
        queue.monitor.run_deferred()
    assert [each.category for each in caught] == [ResourceWarning]
    forebay.Forebay(engine, lock).close()


def test_a_store_that_was_closed_is_not_warned_of(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with forebay.open(tmp_path, memory_limit="4MiB", background=False, sync="never") as bay:
            assert repr(bay).endswith("open>")
        del bay
        gc.collect()
