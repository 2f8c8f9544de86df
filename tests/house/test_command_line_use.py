"""Every command: help that fits a terminal, old names, and what comes of bad input: one line, never a traceback."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import forebay
from forebay.__main__ import COMMANDS, EXIT_CODES, OLD_NAMES, main

SEED = 20261125

READ_ONLY = ("queues", "health", "verify", "dump", "explain", "pipeline backlog", "pipeline rebuild", "pipeline check")
MORE = {
    "browse": ["orders"],
    "send": ["orders", "--body", "x"],
    "take": ["orders"],
    "move": ["orders", "late"],
    "purge": ["orders"],
    "pause": ["orders"],
    "resume": ["orders"],
    "resize": ["16MiB"],
    "top": ["--once"],
    "pipeline load": ["missing.jsonl", "--load-id", "a"],
    "pipeline archive": ["out"],
    "pipeline restore": ["out"],
}
"""The arguments that a command needs beside its directory or file."""
OF_ITSELF = ("demo", "bench", "load")
"""Without a directory or file to read."""
OF_A_PLACE = [name for name in COMMANDS if name not in OF_ITSELF]


def run(name: str, *arguments: str) -> int:
    """The exit code, however it comes."""
    try:
        return main([*name.split(), *arguments])
    except SystemExit as left:
        assert isinstance(left.code, int)
        return left.code


# ---------------------------------------------------------------------- help and names


@pytest.mark.parametrize("name", ["", "pipeline", "completion", *COMMANDS])
def test_help_fits_in_80_columns(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(name, "--help") == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith(f"usage: forebay {name}".rstrip())
    assert [line for line in printed if len(line) > 80] == []
    assert " ".join(EXIT_CODES.split()) in " ".join(" ".join(printed).split())


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("", "--version") == 0
    assert capsys.readouterr().out == f"forebay {forebay.__version__}\n"


def test_list_of_commands_has_no_old_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("", "--help") == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("    ")}
    assert {name.split()[0] for name in COMMANDS if name not in OLD_NAMES} <= listed and "load" not in listed


@pytest.mark.parametrize(
    ("arguments", "new"),
    [
        (["load", "--list"], "bench"),
        (["pipeline", "check", "DIR"], "verify --json"),
        (["pipeline", "pins", "DIR"], "explain --json"),
    ],
)
def test_old_name_does_the_same_and_says_the_new_one(
    arguments: list[str], new: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with forebay.open(tmp_path, memory_limit="8MiB", sync="never") as bay:
        bay.queue("orders").send(b"x")
    arguments = [str(tmp_path) if one == "DIR" else one for one in arguments]
    assert main(arguments) == 0
    old = capsys.readouterr()
    assert old.err == f"forebay: `forebay {' '.join(arguments[: 1 + (new != 'bench')])}` is `forebay {new}` now\n"
    by_new_name = [*new.split(), *(["--list"] if new == "bench" else arguments[2:])]
    assert main(by_new_name) == 0
    printed = capsys.readouterr()
    assert [line.split('"oldest_seconds"')[0] for line in printed.out.splitlines()] == [
        line.split('"oldest_seconds"')[0] for line in old.out.splitlines()
    ]
    assert printed.err == ""


# ---------------------------------------------------------------------- bad input


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with things in it that are no stores."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", None)
    for name in ("empty", "store.toml"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file").write_bytes(bytes(range(256)))
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


PLACES = (
    "missing",
    "empty",
    "file",
    "file/below",
    "store.toml",
    "loop",
    "pipe",
    "",
    "*",
    "[",
    "missing-*",
    "/proc",
    "/proc/self",
    "/proc/self/mem",
    "/proc/self/fd",
    "/dev/null",
    "x" * 300,
    "\udcff\udc80",
    "\x1b[2J",
    "9" * 5000,
)


@pytest.mark.parametrize("name", OF_A_PLACE)
def test_place_that_is_no_store_gives_no_traceback(name: str, places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    for place in PLACES:
        exit_code = run(name, place, *MORE.get(name, []))
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        assert exit_code in (1, 2), place[:20]
        assert printed.err.startswith(("forebay: ", "usage: ")) or printed.out, place[:20]


@pytest.mark.parametrize("name", [*COMMANDS, "pipeline", "completion"])
def test_random_arguments_give_no_traceback(name: str, places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = random.Random(f"{SEED} {name}")
    words = ["--json", "--limits", "--n", "-n", "--engine", "--queue", "--limit", "--interval", "--header", "--body"]
    words += ["--settings", "--selector", "--once", "--scale", "--rate", "--seconds", "--size", "--compare", "--ack"]
    words += ["-1", "0", "nan", "inf", "9" * 400, "=", "x=", "empty", "file", "missing", "n >", "local", ""]
    for _ in range(12):
        given = [chosen.choice(words) for _ in range(chosen.randrange(5))]
        if name in OF_ITSELF:
            given += ["--size", "nonsense"] if name != "demo" else ["--seconds", "0"]
        run(name, *given)
        assert "Traceback" not in capsys.readouterr().err


def program(*arguments: str, shell: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "forebay", *arguments]
    if not shell:
        return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return subprocess.run(["sh", "-c", f'"$@" {shell}', "sh", *command], capture_output=True, text=True)


@pytest.mark.parametrize("shell", [">&-", "2>&-", ">&- 2>&-", "<&-", ">/dev/full", ">/dev/full 2>&-"])
def test_closed_or_full_output_gives_no_traceback(shell: str, tmp_path: Path) -> None:
    with forebay.open(tmp_path, memory_limit="8MiB", sync="never") as bay:
        bay.queue("orders").send_many(forebay.Message(b"tea") for _ in range(3))
    ran = program("take", str(tmp_path), "orders", "--ack", shell=shell)
    is_lost = shell.startswith(">")
    assert ran.returncode == (1 if is_lost else 0)
    assert "Traceback" not in ran.stderr and "Exception ignored" not in ran.stderr
    with forebay.open(tmp_path, memory_limit="8MiB", sync="never") as bay:
        assert bay.queue("orders").depth == (3 if is_lost else 2)


def test_full_output_is_said_in_words_with_what_to_do() -> None:
    ran = program("settings", shell=">/dev/full")
    said = "the output can't be written (No space left on device): make room where it goes, and run the command again"
    assert (ran.returncode, ran.stderr) == (1, f"forebay: {said}\n")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/data/x"), "/data/x can't be used (Permission denied)"),
        (
            OSError(errno.EMFILE, "Too many open files"),
            "the system refused what the command needs (Too many open files)",
        ),
        (TimeoutError("timed out"), "the system refused what the command needs (timed out)"),
    ],
)
def test_what_the_system_refuses_is_said_without_its_numbers(
    error: OSError, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> int:
        raise error

    monkeypatch.setattr("forebay.dispatch.commands.settings.run_settings", refuse)
    assert main(["settings"]) == 1
    assert capsys.readouterr().err == f"forebay: {said}\n"


def test_body_that_nobody_gives_is_asked_for(tmp_path: Path) -> None:
    forebay.open(tmp_path, memory_limit="8MiB", sync="never").close()
    ran = program("send", str(tmp_path), "orders", shell="<&-")
    assert (ran.returncode, ran.stderr) == (2, "forebay: standard input is closed\n")
