"""The console's pages: what they say of a store, of hostile names, of a store that says nothing."""

from __future__ import annotations

import copy
import html
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
from consoles import MIB, TOKEN, client, console_of, of_status, queue_row, say, status
from simulated_bay import SimulatedBay
from starlette.testclient import TestClient
from systems import needs_admin_socket

import forebay.console
import forebay.metrics
from forebay import ArgumentError, Message, SettingsError
from forebay.console.figures import snapshot_of
from forebay.console.guard import Access
from forebay.console.pages import console
from forebay.console.pictures import curve_picture, memory_parts
from forebay.console.sources import LOOK_SECONDS, BaySource, ConsoleSource
from forebay.dispatch.engine.status_file import STATUS
from forebay.dispatch.screen.view import NoView, StoreView, view_of

HOSTILE = ("<script>alert(1)</script>", "\"quoted\" & 'so'", "a\nb\x1b[2J", "{{ 7 * 7 }}", "\u202egnp.exe", "x" * 255)
NONSENSE: tuple[Any, ...] = (None, True, -1, 0, 1e308, float("inf"), float("nan"), 10**400, "", "<b>\x00", [], {}, [[]])
PAGES = ("/", "/queues", "/queue?name=orders", "/messages?name=orders", "/journal")


def text_of(page: str) -> str:
    """What a reader sees: without tags, one space between words."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


# ---------------------------------------------------------------------- what they say


def test_memory_page_says_who_holds_the_limit_and_which_limit_is_recommended(tmp_path: Path) -> None:
    say(tmp_path)
    page = of_status(tmp_path).get("/")
    said = text_of(page.text)
    assert page.status_code == 200 and "50 MiB of 64 MiB are held" in said
    for part in ("in flight 12 MiB", "TargetLists 20 MiB", "PendingCache 9 MiB", "HeadQueueCache 4 MiB", "other 5 MiB"):
        assert part in said
    assert "free 14 MiB" in said and "recommended 128 MiB" in said and "1 GiB 1.000" in said
    assert "0:orders has 1,234,567 messages." in said


def test_bar_is_as_wide_as_the_limit_or_as_what_is_held_above_it() -> None:
    for limit in (64, 30):
        view = view_of(status(memory=status()["memory"] | {"limit_bytes": limit * MIB}), "localhost")
        parts = memory_parts(view)
        assert sum(part.width for part in parts) == pytest.approx(100, abs=0.01)
        assert parts[1].x == pytest.approx(parts[0].width, abs=0.01)
    assert parts[-1].width == 0 and parts[-1].title == "free"


def test_curve_has_a_point_for_each_limit_and_marks_the_limit_of_now() -> None:
    picture = curve_picture(view_of(status(), "localhost"))
    assert picture is not None
    [points] = [piece.points for line in picture.lines for piece in line.pieces]
    assert len(points) == 8
    heights = [y for _, y in points]
    assert heights == sorted(heights, reverse=True) and heights[-1] == 0
    assert [(mark.at, mark.look) for mark in picture.marks] == [(points[3][0], "mark"), (points[4][0], "mark best")]


@pytest.mark.parametrize(
    "curve", [[], [[1, 1]], [[MIB, 0.5], [MIB, 0.7]], "no", [["a", "b"], [1], None], [[-1, -1]] * 3]
)
def test_curve_that_makes_no_sense_is_no_curve(curve: object, tmp_path: Path) -> None:
    say(tmp_path, memory={"limit_bytes": MIB, "curve": curve})
    assert "Nothing is known yet" in of_status(tmp_path).get("/").text


def test_curve_never_leaves_its_picture() -> None:
    memory = {"limit_bytes": 9 * MIB, "recommended_limit_bytes": MIB, "curve": [[4 * MIB, 7.0], [2 * MIB, -3]]}
    picture = curve_picture(view_of(status(memory=memory), "localhost"))
    assert picture is not None and picture.marks == ()
    assert [y for line in picture.lines for piece in line.pieces for _, y in piece.points] == [100, 0]


def test_queues_page_has_a_row_for_each_queue_and_counts_the_others(tmp_path: Path) -> None:
    say(tmp_path, queues=[queue_row(), queue_row("late", depth=3, is_paused=True)])
    said = text_of(of_status(tmp_path).get("/queues").text)
    assert "orders 1,234,567 1,233,567 1,000 1.2 GiB 9 seconds 2 346 87" in said
    assert "late paused 3" in said and said.endswith("And 3 less busy.")


@needs_admin_socket
def test_queue_page_explains_shows_figures_and_consumers(tmp_path: Path) -> None:
    with forebay.open(tmp_path, memory_limit="8MiB", sync="never", admin=True, status_interval_seconds=None) as bay:
        bay.queue("orders").send_many(Message(b"x") for _ in range(3))
        say(tmp_path / "localhost")
        said = text_of(of_status(tmp_path / "localhost").get("/queue?name=orders").text)
    assert "0:orders has 3 messages of 3 bytes: 3 messages wait for a consumer, of which there is none." in said
    assert "no_consumer 0:orders 3 messages" in said and "depth 1,234,567" in said
    assert "#2 kind='rare' slow 1,000 1,000 12 1 MiB 2 MiB" in said


def test_messages_come_in_pages_with_headers_and_without_bodies_unless_the_operator_allows_them() -> None:
    store = SimulatedBay()
    store.queue().send_many(Message(b"body-%d" % n, headers={"n": n, "<i>": "<u>"}) for n in range(120))
    first = console_of(store).get("/messages?name=orders").text
    assert first.count('class="mono"') == 50 and "body-0" not in first and "that takes --bodies" in text_of(first)
    assert "&lt;i&gt;</b> &lt;u&gt;" in first and "<i>" not in first
    last = console_of(store, bodies=True).get("/messages?name=orders&skip=100").text
    assert "101 to 120" in last and "body-100" in last and "body-99" not in last
    assert "skip=50" in last and "skip=150" not in last
    assert store.queue().depth == 120


def test_pages_of_messages_end_where_reading_what_lies_before_would_cost_too_much() -> None:
    store = SimulatedBay(memory_limit="8MiB")
    store.queue().send_many(Message(b"") for _ in range(1_200))
    browser = console_of(store)
    page = browser.get("/messages?name=orders&skip=1000").text
    assert "1,001 to 1,050" in page and "skip=1050" not in page and "Queue.browse()" in page
    refused = browser.get("/messages?name=orders&skip=1001")
    assert refused.status_code == 400 and "skip must be a whole number up to 1,000" in refused.text


@needs_admin_socket
def test_journal_page_has_a_square_for_each_data_log_and_what_keeps_it(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"memory_limit": "8MiB", "sync": "never", "max_file_length": "64KiB"}
    with forebay.open(tmp_path, admin=True, status_interval_seconds=None, **settings) as bay:
        for _ in range(5):
            bay.queue("orders").send_many(Message(bytes(1000)) for _ in range(40))
        say(tmp_path / "localhost")
        page = of_status(tmp_path / "localhost").get("/journal").text
        later = of_status(tmp_path / "localhost").get("/journal?after=2").text
    assert re.findall(r'<li><a class="(live-\d)"', page) == ["live-1", "live-2", "live-3", "live-4"]
    assert "data-1.log (" in page and "remains because 0:orders has" in page
    assert 'id="log-1"' in page and 'id="log-3"' in page and 'id="log-2"' not in later and 'id="log-3"' in later


@needs_admin_socket
def test_without_an_admin_socket_pages_show_what_the_status_says_and_what_would_tell_more(tmp_path: Path) -> None:
    say(tmp_path)
    browser = of_status(tmp_path)
    for path in ("/queue?name=orders", "/messages?name=orders", "/journal"):
        page = browser.get(path)
        assert page.status_code == 200 and "open with admin=True" in page.text
    assert "live-4" in browser.get("/journal").text


def test_mounted_console_says_the_same_of_a_store_of_its_own_process() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    store = SimulatedBay(memory_limit="8MiB")
    store.queue().send_many(Message(b"x" * 100) for _ in range(10))
    inner = forebay.console.app(store.bay, token=TOKEN, open_reading=True)
    browser = client(Starlette(routes=[Mount("/ops/forebay", app=inner)]))
    for path in PAGES:
        page = browser.get(f"/ops/forebay{path}")
        assert page.status_code == 200, path
        links = re.findall(r'(?:href|src|action|formaction)="([^"#]*)', page.text)
        assert all(link.startswith("/ops/forebay/") or link in ("data:,", "") for link in links)
    assert "of 8 MiB are held" in text_of(browser.get("/ops/forebay/").text)
    assert "orders 10 10 0" in text_of(browser.get("/ops/forebay/queues").text)
    assert 'href="/ops/forebay/journal?after=0#log-1" title="data-1.log: ' in browser.get("/ops/forebay/journal").text
    assert browser.get("/ops/forebay/pages.css").headers["content-type"].startswith("text/css")
    done = browser.post("/ops/forebay/pause", data={"queue": "orders", "token": TOKEN})
    assert done.status_code == 200 and "/ops/forebay/queue?name=orders" in done.text and store.queue().is_paused


def test_looks_at_a_store_of_this_process_are_shared_for_a_second_and_measure_rates_between_them() -> None:
    store, now = SimulatedBay(), [0.0]
    source = BaySource(store.bay, lambda: now[0])
    store.queue().send_many(Message(b"x") for _ in range(10))
    now[0] = 2.0
    first = source.read()
    assert isinstance(first, StoreView) and first.queues[0].in_per_second == 5.0
    store.queue().send(b"x")
    assert source.read() is first
    now[0] += LOOK_SECONDS
    later = source.read()
    assert isinstance(later, StoreView) and later.queues[0].in_per_second == 1.0 and later.queues[0].depth == 11
    store.bay.close()
    assert isinstance(source.read(), NoView)


# ---------------------------------------------------------------------- hostile and broken stores


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_name_is_shown_as_text_and_never_as_markup(name: str, tmp_path: Path) -> None:
    consumer = status()["consumers"][0] | {"queue": name, "selector": name}
    say(
        tmp_path / name[:4].strip("<\n"),
        queues=[queue_row(name)],
        explain=name,
        consumers=[consumer],
        health={"ok": False, "problems": [name]},
    )
    browser = of_status(tmp_path / name[:4].strip("<\n"))
    for path, fields in (("/", {}), ("/queues", {}), ("/queue", {"name": name}), ("/messages", {"name": name})):
        page = browser.get(path, params=fields).text
        # `script` itself is used for one file of ours, and nothing else than that.
        assert re.findall(r"<script[^>]*>", page) in ([], ['<script src="/console.js" defer>'])
        assert not re.search(r"\sstyle=|\son\w+=\"|javascript:", page)
        shown = "".join(one if one.isprintable() else "?" for one in name)
        assert shown in text_of(page) and "\x1b" not in page and "\u202e" not in page
        assert name.isprintable() is (name in text_of(page))


def test_hostile_queue_of_a_real_store_is_explained_browsed_and_changed_by_its_links() -> None:
    store = SimulatedBay()
    name = '<script>alert("1")</script>&amp;\'?#/%2e'
    store.queue(name).send_many(Message(b"<b>", headers={"</td><script>": "\"'><svg onload=x>"}) for _ in range(3))
    browser = console_of(store, bodies=True)
    [link] = [html.unescape(found) for found in re.findall(r'href="(/queue\?[^"]*)"', browser.get("/queues").text)]
    page = browser.get(link)
    assert f"0:{name} has 3 messages" in text_of(page.text) and "<script>" not in page.text
    messages = browser.get(link.replace("/queue?", "/messages?")).text
    assert messages.count("&lt;svg onload=x&gt;") == 3 and "<svg onload" not in messages and "<script>" not in messages
    [value] = re.findall(r'name="queue" value="([^"]*)"', page.text)
    done = browser.post("/purge", data={"queue": html.unescape(value), "token": TOKEN, "sure": "yes"})
    assert f"3 messages removed from {name}." in text_of(done.text) and store.queue(name).depth == 0


def test_bodies_that_are_no_text_are_shown_as_digits_and_only_their_beginning() -> None:
    store = SimulatedBay()
    store.queue().send(b"\xff\x00<b>" * 5_000)
    store.queue().send(("\u00e4" * 5_000).encode(), headers={"long": "y" * 5_000, "bytes": b"\xff", "list": ["<a>"]})
    page = console_of(store, bodies=True).get("/messages?name=orders").text
    assert "ff 00 3c 62 3e" in page and "\u00e4" * 200 in page and len(page) < 10_000
    assert "['<a>']" in text_of(page) and "<a>" not in page


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"format": 1}', '{"format": 1, "time": 1e999, "interval_seconds": 1}', "[" * 100_000],
)
def test_status_that_makes_no_sense_is_a_page_in_words(content: str, tmp_path: Path) -> None:
    (tmp_path / STATUS).write_text(content)
    browser = of_status(tmp_path)
    for path in PAGES:
        page = browser.get(path)
        assert page.status_code == 503 and "No process says that it has this store open." in page.text, path
    assert browser.get("/healthz").status_code == 503


@pytest.mark.parametrize(
    "fields",
    [
        {"queues": [{}, 7, {"name": 7, "depth": "x"}, queue_row(oldest_seconds="old", bytes=-1)]},
        {"consumers": [None, {"queue": "orders"}], "data_logs": [{"first": -1, "bytes": 0, "live_bytes": 7}, 1]},
        {"memory": None, "store": [], "health": 7, "explain": {}, "other_queues": "many"},
        {"memory": {"limit_bytes": 1e308, "held_bytes": float("inf"), "holders": {"index": float("nan")}}},
    ],
)
def test_forged_status_breaks_no_page(fields: dict[str, Any], tmp_path: Path) -> None:
    say(tmp_path, **fields)
    browser = of_status(tmp_path)
    for path in (*PAGES, "/metrics"):
        assert browser.get(path).status_code == 200, path


def test_no_status_and_no_answer_whatever_is_in_it_breaks_a_page() -> None:
    seed = 5
    rng = random.Random(seed)
    answered = {
        "sentence": "s",
        "causes": [{"reason": "r", "holder": "h", "messages": 1, "bytes": 2, "frees": "f"}],
        "messages": [{"id": "1", "bytes": 1, "priority": 4, "persistent": True, "group": None, "header_count": 1}],
        "data_logs": [{"data_log": 1, "bytes": 2, "live_bytes": 1, "sentence": "s"}],
        "is_more": True,
        "more": 1,
    }
    answered["messages"][0] |= {"headers": [["n", "1"]], "body": "x"}  # type: ignore[index]

    def spoil(part: Any) -> Any:
        if rng.random() < 0.15:
            return copy.deepcopy(rng.choice(NONSENSE))
        if isinstance(part, dict):
            return {key: spoil(value) for key, value in part.items() if rng.random() < 0.95}
        return [spoil(value) for value in part] if isinstance(part, list) else part

    class Spoilt(ConsoleSource):
        def read(self) -> StoreView:
            found = spoil(status())
            return view_of(found if isinstance(found, dict) else {}, self.broker)

        def ask(self, request: dict[str, Any]) -> dict[str, Any]:
            found = spoil(answered)
            return found if isinstance(found, dict) else {}

        def metrics(self) -> str:
            found = spoil(status())
            return forebay.metrics.text_of("x", snapshot_of(found if isinstance(found, dict) else {}))

    access = Access(TOKEN, open_reading=True, open_messages=True)
    browser = TestClient(console(Spoilt("x"), access, bodies=True), base_url="http://localhost")
    for turn in range(60):
        for path in (*PAGES, "/healthz", "/metrics"):
            try:
                assert browser.get(path).status_code in (200, 503)
            except Exception as error:
                raise AssertionError(f"seed {seed}, turn {turn}, {path}") from error


def test_process_that_has_gone_is_said_in_words_with_what_to_do(tmp_path: Path) -> None:
    say(tmp_path, time=time.time() - 100)
    page = of_status(tmp_path).get("/")
    assert page.status_code == 503 and "it is gone, or it stands still" in page.text and "Traceback" not in page.text
    assert "forebay verify DIR" in page.text


def test_closed_store_of_this_process_is_said_in_words() -> None:
    store = SimulatedBay()
    browser = console_of(store)
    store.bay.close()
    for path in PAGES:
        assert browser.get(path).status_code == 503 and "This store is closed." in browser.get(path).text
    assert browser.get("/healthz").text == "This store is closed.\n"


@pytest.mark.parametrize(
    ("path", "code", "problem"),
    [
        ("/queue", 400, "Name a queue"),
        ("/messages?name=orders&skip=-1", 400, "skip must be"),
        ("/messages?name=orders&skip=\u0661", 400, "skip must be"),
        ("/journal?after=x", 400, "after must be"),
        ("/nothing", 404, "Not Found"),
        ("/purge", 405, "Method Not Allowed"),
        ("/pages.css/../pages.py", 404, "Not Found"),
    ],
)
def test_request_that_makes_no_sense_is_a_page_in_words(path: str, code: int, problem: str, tmp_path: Path) -> None:
    say(tmp_path)
    page = of_status(tmp_path).get(path)
    assert page.status_code == code and problem in page.text and "Back to memory" in page.text


def test_mistake_of_the_console_is_a_page_without_its_details(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*_: object) -> None:
        raise RuntimeError("secret detail")

    say(tmp_path)
    monkeypatch.setattr("forebay.console.sources.read_view", look)
    page = of_status(tmp_path).get("/")
    assert page.status_code == 500 and "logged it" in page.text and "secret" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]


# ---------------------------------------------------------------------- probes


def test_healthz_is_503_with_a_line_for_each_problem_and_else_200(tmp_path: Path) -> None:
    say(tmp_path)
    browser = of_status(tmp_path)
    assert (browser.get("/healthz").status_code, browser.get("/healthz").text) == (200, "ok\n")
    say(tmp_path, health={"ok": False, "problems": ["checkpoint fails", "the disk is full"]})
    assert (browser.get("/healthz").status_code, browser.get("/healthz").text) == (
        503,
        "checkpoint fails\nthe disk is full\n",
    )
    assert "2 problems" in browser.get("/").text


def test_metrics_of_another_process_are_those_of_its_status(tmp_path: Path) -> None:
    say(tmp_path, failing={"checkpoint": {"tries": 7}})
    page = of_status(tmp_path).get("/metrics")
    assert page.headers["content-type"].startswith("text/plain") and page.status_code == 200
    broker = f'broker="{tmp_path.name}"'
    for line in (
        f"forebay_memory_limit_bytes{{{broker}}} 67108864",
        f'forebay_memory_holder_bytes{{{broker},holder="index"}} 5242880',
        f'forebay_queue_messages{{{broker},queue="orders"}} 1234567',
        f'forebay_queue_messages_enqueued_total{{{broker},queue="orders"}} 77',
        f'forebay_background_failing_tries{{{broker},work="checkpoint"}} 7',
        f"forebay_queues{{{broker}}} 4",
        f'forebay_take_duration_seconds_bucket{{{broker},le="67.108864"}} 2',
        f"forebay_journal_sync_duration_seconds_count{{{broker}}} 3",
        f"forebay_journal_sync_duration_seconds_sum{{{broker}}} 200.5",
        f'forebay_cache_served_total{{{broker},cache="pending_cache"}} 9',
        f'forebay_topic_messages_enqueued_total{{{broker},topic="prices"}} 8',
        f'forebay_topic_consumers{{{broker},topic="prices"}} 2',
        f'forebay_subscription_messages{{{broker},topic="prices",subscription="audit"}} 6',
        f"forebay_healthy{{{broker}}} 1",
    ):
        assert line in page.text.splitlines()
    say(tmp_path, time=time.time() - 100)
    assert f"forebay_healthy{{{broker}}} 0" in of_status(tmp_path).get("/metrics").text
    assert "forebay_queue" not in of_status(tmp_path).get("/metrics").text


@pytest.mark.parametrize(
    "durations", [None, [1], {"sync": None}, {"sync": {"buckets": [1, 2]}}, {"sync": {"buckets": 1}}]
)
def test_durations_that_make_no_sense_are_not_told(durations: Any, tmp_path: Path) -> None:
    say(tmp_path, durations=durations)
    text = of_status(tmp_path).get("/metrics").text
    assert "forebay_journal_sync_duration" not in text and "forebay_queue_messages" in text


def test_metrics_of_a_mounted_console_are_those_of_the_store() -> None:
    store = SimulatedBay()
    store.queue('a"b\\c').send(b"x")
    text = console_of(store).get("/metrics").text
    assert 'forebay_queue_messages{broker="localhost",queue="a\\"b\\\\c"} 1' in text.splitlines()


def test_what_is_no_store_is_refused_and_so_is_a_short_token() -> None:
    store = SimulatedBay()
    with pytest.raises(ArgumentError, match=r"of forebay\.aio, \.synchronous"):
        forebay.console.app("data", token=TOKEN)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="at least 16 characters"):
        forebay.console.app(store.bay, token="short")
