"""Who may read and change what: tokens, names of hosts, origins, and the headers of every answer."""

from __future__ import annotations

import base64
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from consoles import TOKEN, console_of, of_status, say
from simulated_bay import SimulatedBay
from systems import needs_admin_socket

import forebay.console
from forebay import Message, SettingsError
from forebay.console.guard import POLICY
from forebay.console.pages import FIELDS_MAX, FORM_BYTES_MAX

ACTIONS: dict[str, dict[str, str]] = {
    "resize": {"memory_limit": "16MiB"},
    "pause": {"queue": "orders"},
    "resume": {"queue": "held"},
    "purge": {"queue": "orders", "sure": "yes"},
    "move": {"queue": "orders", "to": "late"},
}
SAID = {
    "resize": "The memory limit is 16 MiB, ",
    "pause": "orders hands out nothing.",
    "resume": "held hands out again.",
    "purge": "10 messages removed from orders.",
    "move": "10 messages moved from orders to late.",
}
WRONG = (None, "", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "\u00e4" * 20)


@pytest.fixture
def store() -> Iterator[SimulatedBay]:
    made = SimulatedBay(memory_limit="8MiB")
    made.queue().send_many(Message(b"x", headers={"n": n}) for n in range(10))
    made.queue("held").pause()
    yield made


def state(store: SimulatedBay) -> tuple[object, ...]:
    names = store.bay.destinations()
    depths = tuple((name, store.queue(name).depth, store.queue(name).is_paused) for name in names)
    return (*depths, store.bay.settings.memory_limit_bytes)


def basic(password: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"anyone:{password}".encode()).decode()}


# ---------------------------------------------------------------------- actions


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("token", WRONG)
def test_action_without_the_token_is_refused_and_changes_nothing(
    action: str, token: str | None, store: SimulatedBay
) -> None:
    before = state(store)
    fields = ACTIONS[action] | ({"token": token} if token is not None else {})
    bearer = {"authorization": f"Bearer {token}"} if token is not None and token.isascii() else {}
    for headers in ({}, bearer, basic(TOKEN)):
        answered = console_of(store).post(f"/{action}", data=fields, headers=headers)
        assert answered.status_code == 403 and "Nothing was changed" in answered.text
    assert state(store) == before


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("is_bearer", [True, False])
def test_action_with_the_token_is_done_and_says_what_came_of_it(
    action: str, is_bearer: bool, store: SimulatedBay
) -> None:
    before = state(store)
    token, headers = ({}, {"authorization": f"Bearer {TOKEN}"}) if is_bearer else ({"token": TOKEN}, {})
    answered = console_of(store).post(f"/{action}", data=ACTIONS[action] | token, headers=headers)
    assert answered.status_code == 200 and SAID[action] in answered.text
    assert state(store) != before


@pytest.mark.parametrize("action", ACTIONS)
def test_action_by_another_method_does_nothing(action: str, store: SimulatedBay) -> None:
    before = state(store)
    browser = console_of(store)
    headers = {"authorization": f"Bearer {TOKEN}"}
    for method in ("GET", "PUT", "DELETE", "PATCH", "HEAD"):
        assert browser.request(method, f"/{action}", params=ACTIONS[action], headers=headers).status_code == 405
    assert state(store) == before


@pytest.mark.parametrize(
    ("action", "fields", "problem"),
    [
        ("resize", {}, "say the new limit"),
        ("resize", {"memory_limit": "much"}, "memory_limit"),
        ("pause", {}, "say which queue"),
        ("pause", {"queue": "orderz"}, "there is no queue"),
        ("purge", {"queue": "orders"}, "tick that you are sure"),
        ("purge", {"queue": "orderz", "sure": "yes"}, "there is no queue"),
        ("move", {"queue": "orders"}, "say which queue to move to"),
        ("move", {"queue": "orders", "to": "late", "limit": "-1"}, "a whole number"),
        ("move", {"queue": "orders", "to": "late", "selector": "n >>"}, "expected a value, found &gt;"),
        ("move", {"queue": "orders", "to": "orders"}, "moved to another one"),
    ],
)
def test_action_that_makes_no_sense_ends_with_the_words_of_the_store_and_changes_nothing(
    action: str, fields: dict[str, str], problem: str, store: SimulatedBay
) -> None:
    before = state(store)
    answered = console_of(store).post(f"/{action}", data=fields | {"token": TOKEN})
    assert answered.status_code == 400 and problem in answered.text
    assert state(store) == before


def test_move_takes_a_selector_and_a_limit(store: SimulatedBay) -> None:
    fields = ACTIONS["move"] | {"selector": "n >= 5", "limit": "3", "token": TOKEN}
    assert "3 messages moved" in console_of(store).post("/move", data=fields).text
    assert (store.queue().depth, store.queue("late").depth) == (7, 3)


@pytest.mark.parametrize(
    ("content", "kind", "code"),
    [
        (b"x" * (FORM_BYTES_MAX + 1), "application/x-www-form-urlencoded", 413),
        (b"&".join(b"a=1" for _ in range(FIELDS_MAX + 1)), "application/x-www-form-urlencoded", 400),
        (b"queue=\xff", "application/x-www-form-urlencoded", 400),
        (b"queue=%ff", "application/x-www-form-urlencoded", 400),
        (b"{}", "application/json", 415),
        (b"queue=orders", "", 415),
    ],
)
def test_form_that_is_none_or_too_long_is_refused(content: bytes, kind: str, code: int, store: SimulatedBay) -> None:
    headers = {"content-type": kind, "authorization": f"Bearer {TOKEN}"}
    assert console_of(store).post("/pause", content=content, headers=headers).status_code == code
    assert not store.queue().is_paused


@needs_admin_socket
def test_action_on_a_store_where_nobody_listens_says_so(tmp_path: Path) -> None:
    say(tmp_path)
    answered = of_status(tmp_path).post("/pause", data={"queue": "orders", "token": TOKEN})
    assert answered.status_code == 409 and "open with admin=True" in answered.text


def test_action_where_the_system_lacks_what_listening_takes_does_not_advise_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(tmp_path)
    monkeypatch.delattr(socket, "SO_PEERCRED", raising=False)
    answered = of_status(tmp_path).post("/pause", data={"queue": "orders", "token": TOKEN})
    assert answered.status_code == 409 and "SO_PEERCRED" in answered.text and "admin=True" not in answered.text


@needs_admin_socket
def test_action_reaches_the_process_that_has_the_store_open(tmp_path: Path) -> None:
    with forebay.open(tmp_path, memory_limit="8MiB", sync="never", admin=True) as bay:
        bay.queue("orders").send(b"x")
        browser = of_status(tmp_path / "localhost")
        assert browser.post("/purge", data=ACTIONS["purge"] | {"token": "wrong"}).status_code == 403
        assert bay.queue("orders").depth == 1
        assert browser.post("/purge", data=ACTIONS["purge"] | {"token": TOKEN}).status_code == 200
        assert bay.queue("orders").depth == 0


# ---------------------------------------------------------------------- hosts and origins


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8470", "127.0.0.1", "127.0.0.1:80", "[::1]:8470", "10.1.2.3", "ops.example.com:443"],
)
def test_name_of_ours_is_answered(host: str, store: SimulatedBay) -> None:
    browser = console_of(store, hosts=["Ops.Example.Com"])
    assert browser.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "", "evil@localhost", "localhost/x", "[::1", "a b"],
)
def test_other_name_is_refused_for_reading_and_for_changing(host: str, store: SimulatedBay) -> None:
    before = state(store)
    browser = console_of(store, hosts=["ops.example.com"])
    headers = {"host": host, "authorization": f"Bearer {TOKEN}"}
    for path in ("/", "/healthz", "/metrics", "/pages.css"):
        assert browser.get(path, headers=headers).status_code == 421
    assert browser.post("/purge", data=ACTIONS["purge"], headers=headers).status_code == 421
    assert state(store) == before


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://[::1"},
        {"origin": "http://localhost:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_form_of_another_site_is_refused_even_with_the_token(headers: dict[str, str], store: SimulatedBay) -> None:
    before = state(store)
    answered = console_of(store).post("/purge", data=ACTIONS["purge"] | {"token": TOKEN}, headers=headers)
    assert answered.status_code == 403 and "another site" in answered.text
    assert state(store) == before


def test_form_of_a_page_of_the_console_is_taken(store: SimulatedBay) -> None:
    headers = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    assert (
        console_of(store).post("/pause", data=ACTIONS["pause"] | {"token": TOKEN}, headers=headers).status_code == 200
    )


# ---------------------------------------------------------------------- reading


def test_where_reading_is_not_open_each_page_demands_the_token(store: SimulatedBay) -> None:
    browser = console_of(store, open_reading=False)
    for path in ("/", "/queues", "/queue?name=orders", "/messages?name=orders", "/journal", "/healthz", "/metrics"):
        for headers in ({}, basic("wrong"), {"authorization": "Basic !"}, {"authorization": f"Bearer {TOKEN}x"}):
            refused = browser.get(path, headers=headers)
            assert refused.status_code == 401 and refused.headers["www-authenticate"].startswith("Basic ")
            assert "orders" not in refused.text
        for headers in (basic(TOKEN), {"authorization": f"Bearer {TOKEN}"}):
            assert browser.get(path, headers=headers).status_code == 200


# ---------------------------------------------------------------------- every answer


def test_every_answer_has_the_policy_and_nothing_that_the_policy_forbids(store: SimulatedBay) -> None:
    browser, closed = console_of(store), console_of(store, open_reading=False)
    answers = [
        browser.get(path)
        for path in (
            *("/", "/queues", "/queue?name=orders", "/messages?name=orders", "/journal", "/healthz", "/metrics"),
            *("/pages.css", "/console.js", "/nothing", "/queue", "/purge"),
        )
    ]
    answers.append(browser.get("/", headers={"host": "evil.example"}))
    answers.append(browser.post("/purge"))
    answers.append(browser.post("/pause", data=ACTIONS["pause"] | {"token": TOKEN}))
    answers.append(browser.post("/purge", data=ACTIONS["purge"], headers={"origin": "null"}))
    answers.append(closed.get("/"))
    assert {answered.status_code for answered in answers} == {200, 400, 401, 403, 404, 405, 415, 421}
    for answered in answers:
        assert answered.headers.get_list("content-security-policy") == [POLICY]
        assert answered.headers["x-content-type-options"] == "nosniff"
        assert answered.headers["referrer-policy"] == "same-origin"
        assert answered.headers["cache-control"] == "no-store"
        if answered.headers["content-type"].startswith("text/html"):
            assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! src=\"/console\.js\")", answered.text)


@pytest.mark.parametrize("token", ["", "short", "x" * 15])
def test_token_that_can_be_guessed_is_refused(token: str, store: SimulatedBay) -> None:
    with pytest.raises(SettingsError, match="at least 16 characters"):
        forebay.console.app(store.bay, token=token)
