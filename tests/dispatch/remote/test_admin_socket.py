"""The admin socket: what other processes may ask of an open store, who may, and what comes of nonsense."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from compiled import interpreted
from systems import needs_admin_socket

import forebay
from forebay import Forebay, Message, SettingsError, StoreFailed, StoreLocked
from forebay.__main__ import main
from forebay.dispatch.engine.engine import Engine
from forebay.dispatch.remote import admin_socket, server
from forebay.dispatch.remote.admin_socket import ADMIN_SOCKET, REQUEST_BYTES_MAX, AdminSocket, ask
from forebay.dispatch.remote.requests import answer
from forebay.dispatch.remote.server import AdminServer

pytestmark = needs_admin_socket

SECONDS = 30.0


def open_bay(place: Path, **fields: Any) -> Forebay:
    chosen: dict[str, Any] = {"memory_limit": "8MiB", "sync": "never", "admin": True}
    return forebay.open(place, **(chosen | fields))


@pytest.fixture
def bay(tmp_path: Path) -> Iterator[Forebay]:
    with open_bay(tmp_path) as opened:
        opened.queue("orders").send_many(Message(b"x" * 10, headers={"n": n}) for n in range(10))
        yield opened


def path_of(tmp_path: Path) -> Path:
    return tmp_path / "localhost" / ADMIN_SOCKET


def asked(tmp_path: Path, request: object) -> dict[str, Any]:
    line = request if isinstance(request, bytes) else json.dumps(request).encode()
    said = ask(str(tmp_path / "localhost"), line, SECONDS)
    assert said is not None
    told: dict[str, Any] = json.loads(said)
    return told


def admin_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "forebay-admin"]


# ---------------------------------------------------------------------- the commands


def test_commands_change_a_running_store_as_the_python_interface_does(
    tmp_path: Path, bay: Forebay, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path)
    assert main(["resize", place, "16MiB"]) == 0 and bay.settings.memory_limit_bytes == 16 << 20
    assert main(["pause", place, "orders"]) == 0 and bay.queue("orders").is_paused
    assert main(["resume", place, "orders"]) == 0 and not bay.queue("orders").is_paused
    assert main(["move", place, "orders", "late", "--selector", "n >= 5", "--limit", "3"]) == 0
    assert (bay.queue("orders").depth, bay.queue("late").depth) == (7, 3)
    assert main(["purge", place, "orders"]) == 0 and bay.queue("orders").depth == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("the memory limit is 16.0 MiB, ")
    assert said[1:] == [
        "orders hands out nothing",
        "orders hands out again",
        "3 messages moved to late",
        "7 messages removed",
    ]


def test_explain_asks_the_process_where_it_listens_and_else_the_journal(
    tmp_path: Path, bay: Forebay, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("Memory: ")
    assert main(["explain", str(tmp_path), "--queue", "orders"]) == 0
    assert capsys.readouterr().out.startswith("0:orders has 10 messages of ")
    assert main(["explain", str(tmp_path), "1", "--queue", "orders"]) == 2
    bay.close()
    capsys.readouterr()
    assert main(["explain", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("localhost: Disk: ")


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["purge", "DIR", "orderz"], 2, "there is no queue 'orderz'"),
        (["resize", "DIR", "much"], 2, "memory_limit"),
        (["move", "DIR", "orders", "orders"], 2, "moved to another one"),
        (["move", "DIR", "orders", "late", "--selector", "n >>"], 2, ""),
        (["move", "DIR", "orders", "late", "--limit", "-1"], 2, "limit must be an int from 0 on"),
        (["explain", "DIR", "--queue", "orderz"], 2, "there is no queue"),
    ],
)
def test_what_the_store_refuses_ends_with_its_words_and_changes_nothing(
    arguments: list[str], code: int, problem: str, tmp_path: Path, bay: Forebay, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path) if one == "DIR" else one for one in arguments]) == code
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("forebay: ") and problem in line
    assert bay.destinations() == ["orders"] and bay.queue("orders").depth == 10


def test_store_where_nobody_listens_is_said_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_bay(tmp_path, admin=False) as bay:
        bay.queue("orders").send(b"x")
        assert main(["purge", str(tmp_path), "orders"]) == 1
        assert "open with admin=True" in capsys.readouterr().err
        assert bay.queue("orders").depth == 1
    assert main(["explain", str(tmp_path), "--queue", "orders"]) == 1


# ---------------------------------------------------------------------- the socket


def test_socket_is_its_owner_s_alone_with_one_thread_and_gone_after_the_close(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        bay = open_bay(tmp_path)
    finally:
        os.umask(before)
    mode = path_of(tmp_path).stat().st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    assert len(admin_threads()) == 1
    bay.close()
    assert not path_of(tmp_path).exists() and not admin_threads()


def test_store_without_admin_has_neither_socket_nor_thread(tmp_path: Path) -> None:
    with open_bay(tmp_path, admin=False):
        assert not path_of(tmp_path).exists() and not admin_threads()


def test_socket_of_a_killed_process_is_replaced_and_a_link_is_not_followed(tmp_path: Path) -> None:
    open_bay(tmp_path, admin=False).close()
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path_of(tmp_path)))
    with open_bay(tmp_path):
        assert asked(tmp_path, {"do": "explain"})["ok"]
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    path_of(tmp_path).symlink_to(victim)
    with open_bay(tmp_path):
        assert asked(tmp_path, {"do": "explain"})["ok"]
    assert victim.read_bytes() == b"mine"


def test_second_close_and_a_forked_child_leave_the_socket_of_the_next_owner(tmp_path: Path) -> None:
    first = open_bay(tmp_path)
    first.close()
    with open_bay(tmp_path):
        first.close()
        assert asked(tmp_path, {"do": "explain"})["ok"]
    child = AdminSocket(str(tmp_path / "localhost"))
    child.disable_in_child()
    child.stop()
    assert path_of(tmp_path).exists()


def test_directory_with_a_long_name_has_a_socket_too(tmp_path: Path) -> None:
    place = tmp_path / ("x" * 120)
    with open_bay(place):
        assert asked(place, {"do": "explain"})["ok"]


def test_silent_client_keeps_no_close_waiting(tmp_path: Path) -> None:
    bay = open_bay(tmp_path)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(path_of(tmp_path)))
        silent.send(b"half a requ")
        bay.close()
        with suppress(ConnectionResetError):
            assert silent.recv(1) == b""


@interpreted("replaces a constant of the module")
def test_client_that_lets_a_request_trickle_in_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_socket, "CLIENT_SECONDS", 0.2)
    with open_bay(tmp_path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path_of(tmp_path)))
        client.settimeout(0.05)
        for _ in range(60):
            with suppress(BrokenPipeError):
                client.send(b"x")
            try:
                assert client.recv(1) == b""
                break
            except ConnectionResetError:
                break
            except TimeoutError:
                pass  # still listened to
        else:
            pytest.fail("it keeps the connection as long as it likes")


def test_client_waits_while_the_system_lets_no_more_clients_wait(tmp_path: Path) -> None:
    listening = AdminSocket(str(tmp_path))
    others: list[socket.socket] = []
    with suppress(BlockingIOError):
        for _ in range(100):
            others.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            others[-1].setblocking(False)
            others[-1].connect(str(tmp_path / ADMIN_SOCKET))
    assert len(others) < 100
    with pytest.raises(TimeoutError):
        ask(str(tmp_path), b"x", 0.01)
    for other in others:
        other.close()
    server = threading.Thread(target=listening.serve, args=(bytes.upper,))
    server.start()
    try:
        assert ask(str(tmp_path), b"x", SECONDS) == b"X\n"
    finally:
        listening.stop()
        server.join()


@pytest.mark.parametrize(("module", "name"), [(socket, "SO_PEERCRED"), (os, "O_PATH")])
def test_system_that_lacks_what_it_needs_is_told_so_at_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], module: Any, name: str
) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(module, name)
        with pytest.raises(SettingsError, match=f"admin=True needs {name}, which this system lacks"):
            open_bay(tmp_path)
        assert not path_of(tmp_path).exists()
        with open_bay(tmp_path, admin=False):
            assert ask(str(tmp_path / ("x" * 120)), b"x", SECONDS) is None
            for command in (["resize", "{}", "16MiB"], ["pause", "{}", "orders"], ["purge", "{}", "orders"]):
                assert main([one.format(tmp_path) for one in command]) == 1
                [line] = capsys.readouterr().err.splitlines()
                assert f"takes {name}, which this system lacks: call the Python interface" in line
                assert "admin=True" not in line
    with open_bay(tmp_path):
        assert asked(tmp_path, {"do": "explain"})["ok"]


def test_failed_open_leaves_no_socket(tmp_path: Path) -> None:
    with open_bay(tmp_path), pytest.raises(forebay.StoreLocked):
        open_bay(tmp_path)
    with pytest.raises(SettingsError, match="record_trace"):
        open_bay(tmp_path, record_trace=tmp_path / "missing" / "trace")
    assert not path_of(tmp_path).exists()


def test_admin_needs_threads(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="background=True"):
        open_bay(tmp_path, background=False)


# ---------------------------------------------------------------------- nonsense


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"[" * 50_000,
        b"9" * 50_000,
        b'{"do": "open"}',
        b'{"do": ["purge"]}',
        b'{"do": "purge"}',
        b'{"do": "purge", "queue": 7}',
        b'{"do": "purge", "queue": ["orders"]}',
        b'{"do": "purge", "queue": "orders", "force": true}',
        b'{"do": "move", "queue": "orders", "to": null}',
        b'{"do": "move", "queue": "orders", "to": "late", "limit": true}',
        b'{"do": "move", "queue": "orders", "to": "late", "selector": {}}',
        b'{"do": "move", "queue": "orders", "to": "\\ud800"}',
        b'{"do": "resize", "memory_limit": null}',
        b'{"do": "resize", "memory_limit": 1e400}',
        b'{"do": "resize", "memory_limit": -5}',
        b'{"do": "explain", "data_log": "1"}',
        b'{"do": "explain", "data_log": true}',
        b'{"do": "explain", "data_log": 99}',
        b'{"do": "explain", "queue": "orders", "data_log": 1}',
        b'{"do": "explain", "\\u001b[2J": 1}',
    ],
)
def test_request_that_makes_no_sense_is_answered_and_changes_nothing(line: bytes, bay: Forebay) -> None:
    before = bay.settings
    told = json.loads(answer(bay, line))
    assert told["ok"] is False and told["problem"] and told["error"] in ("SettingsError", "ArgumentError")
    assert bay.destinations() == ["orders"] and bay.queue("orders").depth == 10 and bay.settings == before


def test_mistake_of_ours_is_answered_and_logged(bay: Forebay, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def destinations(self) -> list[str]:
            raise ZeroDivisionError("x" * 10_000)

    told = json.loads(answer(Broken(), b'{"do": "purge", "queue": "orders"}'))  # type: ignore[arg-type]
    assert told["error"] == "Exception" and len(told["problem"]) <= 4_000
    assert [getattr(record, "event", None) for record in caplog.records] == ["admin_request_failed"]


def test_a_close_that_fails_waits_for_the_present_request_too_before_it_releases_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_bay(tmp_path)
    close, join = Engine.close, AdminServer.join
    waited: list[list[threading.Thread]] = []

    def close_and_fail(engine: Engine, timeout: float | None = None) -> None:
        close(engine, timeout)
        raise StoreFailed("the device failed")

    def join_and_note(server: AdminServer, timeout: float | None) -> None:
        join(server, timeout)
        with pytest.raises(StoreLocked):
            open_bay(tmp_path)
        waited.append(admin_threads())

    monkeypatch.setattr(Engine, "close", close_and_fail)
    monkeypatch.setattr(AdminServer, "join", join_and_note)
    with pytest.raises(StoreFailed):
        opened.close()
    assert waited == [[]]
    monkeypatch.undo()
    open_bay(tmp_path).close()


def test_a_close_within_a_request_does_not_wait_for_the_close_that_waits_for_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler or a finalizer may run in any thread between two of its instructions."""
    requested, joins = threading.Event(), threading.Event()
    join = AdminServer.join

    def close_too(*_: object) -> bytes:
        requested.set()
        assert joins.wait(SECONDS)
        opened.close()
        return b"{}"

    def tell_and_join(admin: AdminServer, timeout: float | None) -> None:
        joins.set()
        join(admin, timeout)

    monkeypatch.setattr(server, "answer", close_too)
    monkeypatch.setattr(AdminServer, "join", tell_and_join)
    opened = open_bay(tmp_path)

    def ask_in_vain() -> None:
        with suppress(OSError):
            ask(str(tmp_path / "localhost"), b"{}", SECONDS)

    asking = threading.Thread(target=ask_in_vain)
    asking.start()
    assert requested.wait(SECONDS)
    opened.close(SECONDS)
    assert admin_threads() == []
    asking.join(SECONDS)


def test_request_without_an_end_is_not_read_for_ever(tmp_path: Path, bay: Forebay) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(SECONDS)
        client.connect(str(path_of(tmp_path)))
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(1_000):
                client.sendall(b"x" * REQUEST_BYTES_MAX)
    assert asked(tmp_path, {"do": "explain"})["ok"]


def test_connection_takes_one_request_after_the_other(tmp_path: Path, bay: Forebay) -> None:
    with socket.socket(socket.AF_UNIX) as client, client.makefile("rb") as answers:
        client.settimeout(SECONDS)
        client.connect(str(path_of(tmp_path)))
        client.sendall(b'{"do": "pause", "queue": "orders"}\n{"do": "resume", "queue": "orders"}\nnonsense\n')
        assert [json.loads(answers.readline())["ok"] for _ in range(3)] == [True, True, False]


@contextmanager
def forged(tmp_path: Path, said: bytes) -> Iterator[None]:
    """A process that answers everything with this."""
    open_bay(tmp_path, admin=False).close()
    listening = AdminSocket(str(tmp_path / "localhost"))
    thread = threading.Thread(target=listening.serve, args=(lambda line: said,))
    thread.start()
    try:
        yield
    finally:
        listening.stop()
        thread.join()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b"", 1),
        (b"[]", 1),
        (b"nonsense", 1),
        (b"[" * 50_000, 1),
        (b'{"ok": true}', 1),
        (b'{"ok": false, "problem": "a\\u001b[2Jb"}', 1),
        (b'{"ok": true, "result": {"sentence": "a\\u001b[2Jb", "causes": [7, {"messages": "x", "bytes": -1}]}}', 0),
        (b'{"ok": true, "result": {"causes": {}}}', 0),
    ],
)
def test_forged_answer_steers_no_terminal_and_gives_no_traceback(
    said: bytes, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with forged(tmp_path, said):
        assert main(["explain", "--queue", "orders", str(tmp_path)]) == code
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err


def test_answer_that_never_ends_is_let_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with forged(tmp_path, b"x" * (2 << 20)):
        assert main(["pause", str(tmp_path), "orders"]) == 1
    assert "nobody listens" in capsys.readouterr().err
