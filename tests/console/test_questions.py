"""How many questions browsers may ask of a store at a time, and that looking asks none."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest
from consoles import MIB, TOKEN, client, of_status, say, status
from simulated_bay import SimulatedBay

from forebay.console.guard import Access
from forebay.console.pages import QUESTIONS_MAX, console
from forebay.console.sources import BaySource, ConsoleSource
from forebay.dispatch.screen.view import StoreView, view_of


class SlowSource(ConsoleSource):
    """Answers questions when it is told to."""

    def __init__(self) -> None:
        super().__init__("localhost")
        self.asked: list[dict[str, Any]] = []
        self.may_answer = threading.Event()

    def read(self) -> StoreView:
        return view_of(status(), "localhost")

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request)
        assert self.may_answer.wait(30)
        return {"sentence": "asked"}

    def metrics(self) -> str:
        raise NotImplementedError


def test_browsers_beyond_those_that_are_being_answered_are_told_to_come_again() -> None:
    source = SlowSource()
    transport = httpx2.ASGITransport(app=console(source, Access(TOKEN, open_reading=True), bodies=False))

    async def ask_at_once() -> list[int]:
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as browser:
            waiting = {asyncio.ensure_future(browser.get("/queue?name=orders")) for _ in range(QUESTIONS_MAX + 3)}
            refused: set[Any] = set()
            while len(refused) < 3:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                refused |= done
            assert {one.result().headers["retry-after"] for one in refused} == {"1"}
            assert (await browser.get("/")).status_code == 200
            source.may_answer.set()
            answered = await asyncio.gather(*waiting)
            again = await browser.get("/queue?name=orders")
        return [one.result().status_code for one in refused] + [one.status_code for one in (*answered, again)]

    assert asyncio.run(ask_at_once()) == [503] * 3 + [200] * (QUESTIONS_MAX + 1)
    assert len(source.asked) == QUESTIONS_MAX + 1


@pytest.mark.parametrize("bodies", [True, False])
def test_bodies_leave_the_process_of_the_store_only_where_the_operator_allows_them(bodies: bool) -> None:
    source = SlowSource()
    source.may_answer.set()
    browser = client(console(source, Access(TOKEN, open_reading=True, open_messages=True), bodies))
    assert browser.get("/messages?name=orders").status_code == 200
    assert source.asked == [{"do": "browse", "queue": "orders", "skip": 0, "bodies": bodies}]


def test_pages_that_look_again_by_themselves_ask_the_process_nothing(tmp_path: Path) -> None:
    say(tmp_path, memory={"limit_bytes": MIB})
    browser = of_status(tmp_path)
    assert 'data-every="5"' in browser.get("/").text and 'data-every="5"' in browser.get("/queues").text
    for path in ("/queue?name=orders", "/messages?name=orders", "/journal"):
        page = browser.get(path).text
        assert "data-every" not in page and "console.js" not in page


def test_console_that_nobody_looks_at_reads_nothing() -> None:
    store = SimulatedBay()
    store.queue().send(b"x" * 1_000)
    before = dict(store.disk.calls)
    console(BaySource(store.bay), Access(TOKEN), bodies=True)
    assert dict(store.disk.calls) == before
