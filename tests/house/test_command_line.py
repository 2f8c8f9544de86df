"""The command line: exit codes, one line for each error, and never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.__main__ import INTERRUPTED, PIPE_CLOSED, main
from forebay.store.errors import StoreFailed


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["bench", "--messages", "many"], ["verify"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("usage: forebay")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nothing"], "no scenario 'nothing'"),
        (["--messages", "0"], "messages=0"),
        (["--memory", "64"], "memory_limit=64"),
        (["--memory", "much"], "memory_limit='much'"),
        (["--size", "9" * 5000], "size="),
        (["--size", "8"], "size=8"),
        (["--size", "1GiB"], "size='1GiB'"),
        (["--size", "16,15"], "size=15 must be at least 16B and at most 64MiB"),
        (["--size", "16,,1KiB"], "size='' is not a size"),
        (["--size", "1KiB,much"], "size='much' is not a size"),
        (["--size", ",".join(["16"] * 101)], "size has 101 sizes: give 1 to 100"),
        (["--messages", "1000000000000"], "disk"),
        (["--input", "missing.jsonl"], "input=missing.jsonl"),
        (["--input", "missing.jsonl", "tour"], "leave out"),
        (["--json", "missing/result.json"], "json=missing/result.json"),
        (["--dir", "."], "dir=."),
    ],
)
def test_argument_that_cannot_be_honoured_exits_with_2_and_one_line(
    arguments: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "something").touch()
    assert main(["bench", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    assert line.startswith("forebay: ") and problem in line


@pytest.mark.parametrize(
    "error, said",
    [
        (StoreFailed("a sync failed"), str(StoreFailed("a sync failed"))),
        (PermissionError(13, "Permission denied"), "the system refused what the command needs (Permission denied)"),
        (PermissionError(13, "Permission denied", "out"), "out can't be used (Permission denied)"),
    ],
)
def test_work_that_could_not_be_done_exits_with_1_and_one_line(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(arguments: object) -> int:
        raise error

    monkeypatch.setattr("forebay.benchmarks.load.command.load", load)
    assert main(["bench"]) == 1
    assert capsys.readouterr().err == f"forebay: {said}\n"


def start(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "forebay", "bench", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whoever runs the tests may ignore it
    )


def test_interrupted_load_leaves_one_line_and_nothing_behind(tmp_path: Path) -> None:
    with start(tmp_path, "--messages", "1000000") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if " fill " in line:
                break
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == INTERRUPTED
    assert errors == "forebay: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_reader_that_goes_away_ends_the_command_quietly(tmp_path: Path) -> None:
    with start(tmp_path, "--messages", "1000") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
    assert process.returncode == PIPE_CLOSED
    assert errors == ""
    assert list(tmp_path.iterdir()) == []
