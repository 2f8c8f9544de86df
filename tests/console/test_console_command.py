"""`forebay console`: what it prints, what it refuses, and that it serves until it is interrupted."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from consoles import TOKEN
from systems import HAS_ADMIN_SOCKET, needs_admin_socket

import forebay
from forebay import Forebay
from forebay.__main__ import INTERRUPTED, main


@pytest.fixture
def bay(tmp_path: Path) -> Iterator[Forebay]:
    with forebay.open(tmp_path / "data", memory_limit="8MiB", sync="never", admin=HAS_ADMIN_SOCKET) as opened:
        opened.queue("orders").send(b"x")
        yield opened


@contextmanager
def served(directory: Path, *options: str) -> Iterator[tuple[str, str]]:
    """Run the command; give its address and what it says of the token."""
    command = [sys.executable, "-P", "-m", "forebay", "console", str(directory), "--port", "0", *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whoever runs the tests may ignore it
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        yield process.stdout.readline().strip(), process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == INTERRUPTED
        assert process.stderr.read() == "forebay: interrupted\n"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def get(address: str, *, data: dict[str, str] | None = None, token: str | None = None) -> tuple[int, str]:
    content = urllib.parse.urlencode(data).encode() if data is not None else None
    headers = {"authorization": f"Bearer {token}"} if token is not None else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, content, headers), timeout=30) as answered:
            return answered.status, answered.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


@pytest.mark.slow
@needs_admin_socket
def test_console_serves_on_loopback_and_prints_a_new_token_for_what_changes(tmp_path: Path, bay: Forebay) -> None:
    with served(tmp_path / "data") as (address, said):
        assert address.startswith("http://127.0.0.1:")
        what, _, token = said.rpartition(" ")
        assert what == "token to read messages and to change anything:" and len(token) >= 32
        assert get(f"{address}healthz")[0] in (200, 503)  # by whether the first status is written yet
        assert get(f"{address}pause", data={"queue": "orders"})[0] == 403 and not bay.queue("orders").is_paused
        assert get(f"{address}pause", data={"queue": "orders", "token": token})[0] == 200
        assert bay.queue("orders").is_paused
        for path in ("messages?name=orders", "messages?name=nothing"):  # other users of the machine reach it, too
            assert get(f"{address}{path}")[0] == get(f"{address}{path}", token=token + "x")[0] == 401
        assert get(f"{address}messages?name=orders", token=token)[0] in (200, 503)


@pytest.mark.slow
def test_console_that_others_reach_demands_the_token_for_reading_too(tmp_path: Path, bay: Forebay) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(stat.S_IRUSR)
    for options in (("--host", "0.0.0.0"), ("--name", "ops.example.com")):
        with served(tmp_path / "data", "--token-file", str(file), *options) as (address, said):
            assert said == f"token to read and to change anything: in {file}"
            address = address.replace("0.0.0.0", "127.0.0.1")
            assert get(f"{address}queues")[0] == 401
            assert get(f"{address}queues", token=TOKEN)[0] in (200, 503)


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["missing"], 2, "missing does not exist"),
        (["."], 2, "is not a forebay directory"),
        (["data", "--port", "65536"], 2, "port=65536 must be from 0 to 65535"),
        (["data", "--port", "-1"], 2, "port=-1 must be"),
        (["data", "--name", ""], 2, "name='' must be a name"),
        (["data", "--host", "no.such.host.invalid"], 2, "host=no.such.host.invalid"),
        (["data", "--token-file", "missing"], 2, "token file missing can't be read (No such file or directory)"),
        (["data", "--token-file", "data"], 2, "token file data can't be read (Is a directory)"),
        (["data", "--token-file", "short"], 2, "at least 16 characters"),
        (["data", "--token-file", "bytes"], 2, "bytes is no text"),
    ],
)
def test_wrong_usage_ends_with_one_line(
    arguments: list[str],
    code: int,
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "data" / "localhost" / "journal").mkdir(parents=True)
    (tmp_path / "data" / "localhost" / "lock").touch()
    (tmp_path / "short").write_text("short")
    (tmp_path / "bytes").write_bytes(b"\xff" * 40)
    monkeypatch.chdir(tmp_path)
    assert main(["console", *arguments]) == code
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("forebay: ") and problem in line


def test_port_that_is_taken_is_said_in_one_line_with_what_to_do(
    tmp_path: Path, bay: Forebay, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["console", str(tmp_path / "data"), "--port", port]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line == (
        f"forebay: the console can't listen on 127.0.0.1, port {port} (Address already in use): "
        "--port 0 takes one that is free, and --host an address of this machine"
    )


def test_directory_of_several_brokers_asks_for_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("first", "second"):
        os.makedirs(tmp_path / name / "journal")
        (tmp_path / name / "lock").touch()
    assert main(["console", str(tmp_path)]) == 2
    assert "has 2 brokers: name the directory of one" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["starlette.requests", "jinja2", "uvicorn"])
def test_what_is_not_installed_is_named_with_what_installs_it(missing: str, tmp_path: Path, bay: Forebay) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from forebay.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-P", "-c", code, "console", str(tmp_path / "data")]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.endswith("is not installed: pip install 'forebay[console]'\n")
    assert len(ended.stderr.splitlines()) == 1
