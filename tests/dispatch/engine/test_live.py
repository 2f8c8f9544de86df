"""`forebay queues` and `forebay health`: what they print of a running store, a closed one and a forged status."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_streams import Captured

import forebay
from forebay import Forebay, Message
from forebay.__main__ import main
from forebay.dispatch.commands.running import run_queues


def status(**fields: Any) -> dict[str, Any]:
    row = {"name": "orders", "depth": 3, "ready": 1, "in_flight": 2, "bytes": 4096, "consumers": 1}
    row |= {"oldest_seconds": 7.5, "in_per_second": 10.4, "out_per_second": 0.0}
    whole = {"format": 1, "time": time.time(), "interval_seconds": 1.0, "health": {"ok": True, "problems": []}}
    return whole | {"queues": [row], "other_queues": 0} | fields


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    """A directory of a store that is closed, with three messages."""
    with forebay.open(tmp_path, memory_limit="8MiB", sync="never", background=False) as bay:
        bay.queue("orders").send_many(Message(b"x" * 100) for _ in range(3))
        bay.topic("prices")
    yield tmp_path


def say(kept: Path, content: object) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    (kept / "localhost" / "status.json").write_text(text, encoding="utf-8")


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_running_store_is_shown_as_its_status_says(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    say(kept, status(other_queues=12))
    assert main(["queues", str(kept)]) == 0
    head, names, row, remark = lines(capsys)
    assert head == "localhost: 1 queue" and names.split()[:3] == ["queue", "depth", "ready"]
    assert row.split() == ["orders", "3", "1", "2", "4.0", "KiB", "8", "seconds", "1", "10", "0"]
    assert remark == "  and 12 less busy queues"
    assert main(["queues", "--json", str(kept)]) == 0
    [line] = lines(capsys)
    expected = {"broker": "localhost", "name": "orders", "depth": 3, "ready": 1, "in_flight": 2, "ready_in_flight": 3}
    expected |= {"bytes": 4096, "consumers": 1, "oldest_seconds": 7.5, "in_per_second": 10.4, "out_per_second": 0.0}
    assert json.loads(line) == expected | {"is_paused": False}


def test_paused_queue_is_shown_as_paused(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = status()
    found["queues"][0]["is_paused"] = True
    say(kept, found)
    assert main(["queues", str(kept)]) == main(["queues", "--json", str(kept)]) == 0
    _, _, row, line = lines(capsys)
    assert row.split()[:2] == ["orders", "(paused)"] and json.loads(line)["is_paused"] is True


def test_paused_queues_are_named_by_health_which_they_do_not_spoil(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say(kept, status(paused_queues={"count": 3, "names": ["orders", "a\x1b[2Jb"]}))
    assert main(["health", str(kept)]) == main(["health", "--json", str(kept)]) == 0
    well, paused, line = lines(capsys)
    said = "paused, so they hand out nothing: orders, a?[2Jb and 1 more (forebay resume DIR QUEUE)"
    assert (well, paused) == ("localhost: ok", f"localhost: {said}")
    told = {"broker": "localhost", "ok": True, "problems": [], "paused": ["orders", "a?[2Jb"], "other_paused": 1}
    assert json.loads(line) == told
    assert main(["queues", str(kept)]) == 0 and lines(capsys)[-1] == f"  {said}"
    say(kept, status(paused_queues={"count": 1, "names": ["orders"]}))
    assert main(["queues", str(kept)]) == 0 and "resume" not in lines(capsys)[-1]  # its row says so


@pytest.mark.parametrize("paused", [None, [], {"count": 1}, {"count": "1", "names": 7}, {"count": True, "names": []}])
def test_paused_queues_that_make_no_sense_are_left_out(
    kept: Path, paused: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    say(kept, status(paused_queues=paused))
    assert main(["health", str(kept)]) == 0 and lines(capsys) == ["localhost: ok"]


def test_open_store_tells_of_itself_within_two_seconds(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with forebay.open(kept, memory_limit="8MiB", sync="never") as bay:
        wait_for_status(kept, bay)
        assert main(["queues", "--json", str(kept)]) == main(["health", str(kept)]) == 0
        [row, well] = lines(capsys)
        assert json.loads(row)["depth"] == 3 and well == "localhost: ok"
    assert not (kept / "localhost" / "status.json").exists()
    assert main(["health", str(kept)]) == 1


def wait_for_status(kept: Path, bay: Forebay) -> None:
    deadline = time.monotonic() + 60
    while not (kept / "localhost" / "status.json").exists():
        assert time.monotonic() < deadline and bay.health().ok
        bay.queue("orders").find("nothing")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        "nan",
        '{"format": 1}',
        json.dumps(status(format=2)),
        json.dumps(status(time="now")),
        json.dumps(status(interval_seconds=True)),
        json.dumps(status(time=float("nan"))),
        json.dumps(status(time=time.time() - 1000)),
    ],
)
def test_without_a_status_that_makes_sense_the_journal_is_shown(
    kept: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    say(kept, content)
    assert main(["queues", "--json", str(kept)]) == 0
    [row] = [json.loads(line) for line in lines(capsys)]
    assert [row[name] for name in ("name", "depth", "ready", "in_flight", "bytes")] == ["orders", 3, 3, 0, 300]
    assert main(["health", str(kept)]) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"queues": 7},
        {"queues": [7, None, {}, {"name": 3}]},
        {"queues": [status()["queues"][0] | {"depth": "3"}]},
        {"queues": [status()["queues"][0] | {"oldest_seconds": "old"}]},
        {"other_queues": "many", "queues": []},
    ],
)
def test_rows_that_make_no_sense_are_left_out(
    kept: Path, fields: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    say(kept, status(**fields))
    assert main(["queues", str(kept)]) == 0
    assert lines(capsys) == ["localhost: 0 queues"]


def test_forged_names_and_problems_steer_no_terminal(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = status()["queues"][0] | {"name": "a\x1b[2Jb"}
    say(kept, status(queues=[row], health={"ok": False, "problems": ["a\x1b[2Jb", 7]}))
    assert main(["queues", str(kept)]) == 0 and main(["health", str(kept)]) == 1
    printed = capsys.readouterr().out
    assert "\x1b" not in printed and printed.splitlines()[-2:] == ["localhost: a?[2Jb", "localhost: 7"]


def test_problems_and_silence_end_with_1_and_what_is_no_store_with_2(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say(kept, status(health={"ok": False, "problems": ["checkpoint fails"]}))
    assert main(["health", str(kept)]) == 1 and lines(capsys) == ["localhost: checkpoint fails"]
    say(kept, status(time=time.time() - 60))
    assert main(["health", str(kept)]) == 1 and "has said nothing for" in lines(capsys)[0]
    say(kept, status(health=None))
    assert main(["health", str(kept)]) == 1 and "makes no sense" in lines(capsys)[0]
    assert main(["health", str(kept / "localhost" / "journal")]) == 2


def test_watch_goes_on_until_it_is_interrupted(kept: Path) -> None:
    say(kept, status())
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    captured = Captured(wait=wait)
    with pytest.raises(KeyboardInterrupt):
        run_queues(Namespace(directories=[str(kept)], json=True, watch=True, interval=2.5), captured.streams)
    assert len(captured.lines) == 3 and waits == [2.5, 2.5, 2.5]
