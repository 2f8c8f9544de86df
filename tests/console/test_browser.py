"""The console in a browser: it is usable, nothing on it runs that is not ours, and no page is wider than the window."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from consoles import TOKEN

import forebay
from forebay import Forebay, Message
from forebay.console.guard import Access
from forebay.console.pages import console
from forebay.console.sources import BaySource

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = "<img src=x onerror=document.title='hacked'><script>document.title='hacked'</script>"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path"),
    pytest.mark.skipif(find_spec("playwright") is None, reason="playwright is not installed"),
]


@pytest.fixture
def bay(tmp_path: Path) -> Iterator[Forebay]:
    with forebay.open(tmp_path, memory_limit="8MiB", sync="never", max_file_length="64KiB") as opened:
        for _ in range(5):
            opened.queue("orders").send_many(Message(bytes(1_000), headers={"n": n}) for n in range(40))
        opened.queue(HOSTILE).send(HOSTILE.encode(), headers={HOSTILE: HOSTILE})
        with opened.queue("orders").subscribe() as consumer:
            consumer.ack(consumer.take(50))
        yield opened


@pytest.fixture
def address(bay: Forebay) -> Iterator[str]:
    app = console(BaySource(bay), Access(TOKEN, open_reading=True, open_messages=True), bodies=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def page() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


def test_somebody_finds_a_queue_pauses_it_and_purges_it(address: str, bay: Forebay, page: Any) -> None:
    page.goto(address)
    page.get_by_role("link", name="Queues").click()
    page.get_by_role("link", name="orders").click()
    page.get_by_label("Token").fill("a wrong token that is long")
    page.get_by_role("button", name="Pause").click()
    assert "Nothing was changed" in page.inner_text("main") and not bay.queue("orders").is_paused
    page.go_back()
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Pause").click()
    assert "orders hands out nothing." in page.inner_text("main") and bay.queue("orders").is_paused
    page.get_by_role("link", name="orders").click()
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_label("for good").check()
    page.get_by_role("button", name="Purge").click()
    assert "150 messages removed from orders." in page.inner_text("main") and bay.queue("orders").depth == 0


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_the_window_obey_the_policy_and_run_nothing_of_others(address: str, width: int, page: Any) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{address}/queues")
    page.get_by_role("link", name=HOSTILE).click()
    queue = page.url
    for path in (
        f"{address}/",
        f"{address}/queues",
        queue,
        queue.replace("/queue?", "/messages?"),
        f"{address}/journal",
    ):
        page.goto(path)
        assert "hacked" not in page.title().replace(HOSTILE, "")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert page.evaluate("getComputedStyle(document.body).maxWidth") != "none", "the style sheet is not applied"
    assert said == []
