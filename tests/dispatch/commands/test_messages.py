"""`forebay browse`, `send`, `take`, `move` and `purge` of a store that no process has open, and of one that has one."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from command_streams import json_rows

import forebay
from forebay import DestinationPolicy, Message, Settings
from forebay.__main__ import main


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A closed store with five messages in its queue "orders"."""
    directory = tmp_path / "kept"
    with forebay.open(directory, memory_limit="8MiB", sync="never") as bay:
        bay.queue("orders").send_many(Message(f"tea {n}".encode(), {"n": n}) for n in range(5))
    return directory


def bodies(directory: Path, queue: str = "orders") -> list[bytes]:
    with forebay.open(directory, memory_limit="8MiB", sync="never") as bay:
        return [message.body for message in bay.queue(queue).browse()]


def give_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


# ---------------------------------------------------------------------- browse


def test_browse_shows_messages_in_order_and_no_body_unless_asked(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["browse", str(kept), "orders", "-n", "2"]) == 0
    head, first, second, count = capsys.readouterr().out.splitlines()
    assert head.split() == ["message", "priority", "size", "headers"]
    assert first.split()[1:] == ["4", "5", "bytes", '{"n":', "0}"] and '{"n": 1}' in second
    assert count == "2 of 5 messages"
    assert main(["browse", str(kept), "orders", "--json", "--selector", "n >= 3", "--bodies"]) == 0
    assert [(row["headers"], row["body"]) for row in json_rows(capsys)] == [({"n": 3}, "tea 3"), ({"n": 4}, "tea 4")]
    assert main(["browse", str(kept), "orders", "--json"]) == 0
    assert all("body" not in row for row in json_rows(capsys))
    assert len(bodies(kept)) == 5


@pytest.mark.parametrize("count", ["6", "99999999999999999999"])
def test_browse_shows_all_where_more_are_asked_for(kept: Path, capsys: pytest.CaptureFixture[str], count: str) -> None:
    assert main(["browse", str(kept), "orders", "-n", count]) == 0
    assert capsys.readouterr().out.endswith("5 of 5 messages\n")
    assert main(["browse", str(kept), "orders", "-n", count, "--json"]) == 0
    assert len(json_rows(capsys)) == 5


def test_body_and_header_steer_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with forebay.open(tmp_path, memory_limit="8MiB", sync="never") as bay:
        bay.queue("orders").send(b"\x1b[2J\xff\n", headers={"\x1b[2J": "\x1b"})
    assert main(["browse", str(tmp_path), "orders", "--bodies"]) == 0
    assert main(["take", str(tmp_path), "orders"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed and "\\x1b[2J\\xff\\n" in printed
    assert main(["take", str(tmp_path), "orders", "--json"]) == 0
    assert json_rows(capsys)[0]["body_base64"] == "G1sySv8K"


# ---------------------------------------------------------------------- send


def test_send_takes_its_body_from_an_option_or_from_standard_input(
    kept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["send", str(kept), "late", "--body", "caf\u00e9"]) == 0
    first = capsys.readouterr().out.strip()
    give_input(monkeypatch, b"\x00raw\n")
    assert main(["send", str(kept), "late", "--json", "--priority", "7"]) == 0
    [row] = json_rows(capsys)
    with forebay.open(kept, memory_limit="8MiB") as bay:
        found = {message.message_id: message for message in bay.queue("late").browse()}
    assert found[first].body == "caf\u00e9".encode()
    assert (found[row["message_id"]].body, found[row["message_id"]].priority) == (b"\x00raw\n", 7)


def test_headers_are_numbers_and_truths_where_they_look_so_and_else_text(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["n=5", "kg=1.5", "paid=true", "none=null", "text=eu", 'quoted="5"', "list=[1]", "empty=", "a=b=c"]
    headers = [word for one in given for word in ("--header", one)]
    assert main(["send", str(kept), "late", "--body", "x", *headers]) == 0
    with forebay.open(kept, memory_limit="8MiB") as bay:
        [message] = bay.queue("late").browse()
    expected: dict[str, object] = {"n": 5, "kg": 1.5, "paid": True, "none": None, "text": "eu", "quoted": '"5"'}
    assert message.headers == expected | {"list": "[1]", "empty": "", "a": "b=c"}


def test_send_makes_no_store_unless_told_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "mistaken"
    assert main(["send", str(place), "orders", "--body", "x"]) == 2
    assert "--create makes a store there" in capsys.readouterr().err and not place.exists()
    assert main(["send", str(place), "orders", "--body", "x", "--create"]) == 0
    assert bodies(place) == [b"x"]


def test_message_above_the_limit_of_a_settings_file_is_refused(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "forebay.toml"
    path.write_text(Settings(max_message_bytes="1KiB", memory_limit="8MiB").to_toml(), encoding="utf-8")
    give_input(monkeypatch, bytes(1025))
    assert main(["send", str(kept), "orders", "--settings", str(path)]) == 2
    assert "standard input has more than 1,024 bytes" in capsys.readouterr().err
    assert len(bodies(kept)) == 5


# ---------------------------------------------------------------------- take


def test_take_leaves_everything_as_it_was(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(8):  # more often than a message may fail before it is a dead letter
        assert main(["take", str(kept), "orders", "-n", "2"]) == 0
        assert capsys.readouterr().out.splitlines() == ["tea 0", "tea 1"]
    with forebay.open(kept, memory_limit="8MiB") as bay:
        assert bay.destinations() == ["orders"]
        with bay.queue("orders").subscribe() as consumer:
            assert [delivery.attempts for delivery in consumer.take(10)] == [1] * 5


def test_take_with_ack_removes_what_it_printed(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["take", str(kept), "orders", "--ack", "-n", "2", "--json"]) == 0
    assert [row["body"] for row in json_rows(capsys)] == ["tea 0", "tea 1"]
    assert main(["take", str(kept), "orders", "--ack", "--selector", "n = 3"]) == 0
    assert capsys.readouterr().out == "tea 3\n"
    assert bodies(kept) == [b"tea 2", b"tea 4"]
    assert main(["take", str(kept), "orders", "--ack", "-n", "9"]) == 0
    assert main(["take", str(kept), "orders", "--ack"]) == 1
    assert capsys.readouterr().err == "nothing to take in orders\n"


class Gone(io.StringIO):
    """An output whose reader goes away with the first flush."""

    def flush(self) -> None:
        raise BrokenPipeError


def test_message_that_nobody_could_read_stays(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Gone())
    assert main(["take", str(kept), "orders", "--ack", "-n", "3"]) == 141
    assert len(bodies(kept)) == 5


def test_take_raw_prints_bodies_byte_for_byte(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["take", str(kept), "orders", "--raw", "-n", "2"]) == 0
    assert isinstance(out.buffer, io.BytesIO) and out.buffer.getvalue() == b"tea 0tea 1"


# ---------------------------------------------------------------------- move and purge


def test_closed_store_is_opened_to_move_and_purge(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["move", str(kept), "orders", "late", "--selector", "n >= 2", "--limit", "2"]) == 0
    assert main(["purge", str(kept), "orders", "--json"]) == 0
    moved, purged = capsys.readouterr().out.splitlines()
    assert moved == "2 messages moved to late" and json.loads(purged) == {"queue": "orders", "messages": 3}
    assert bodies(kept, "late") == [b"tea 2", b"tea 3"] and bodies(kept) == []


@pytest.mark.parametrize("arguments", [["browse"], ["take"], ["purge"], ["move", "late"]], ids=lambda given: given[0])
def test_queue_that_is_not_there_is_not_made(
    kept: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command, *more = arguments
    assert main([command, str(kept), "orderz", *more]) == 2
    assert capsys.readouterr().err == "forebay: there is no queue 'orderz'; there are: orders\n"
    with forebay.open(kept, memory_limit="8MiB") as bay:
        assert bay.destinations() == ["orders"]


@pytest.mark.parametrize("command", ["browse", "take", "send"])
def test_store_that_a_process_has_open_is_left_to_it_with_words(
    kept: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--body", "x"] if command == "send" else []
    with forebay.open(kept, memory_limit="8MiB", sync="never") as bay:
        assert main([command, str(kept), "orders", *more]) == 1
        assert bay.queue("orders").depth == 5
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("forebay: ") and "call the Python interface" in line


def test_settings_of_the_environment_and_of_a_file_open_the_store(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = DestinationPolicy(max_messages=5, when_full="fail")
    path = tmp_path / "forebay.toml"
    path.write_text(Settings(policies={"orders": policy}, admin=True).to_toml(), encoding="utf-8")
    assert main(["send", str(kept), "orders", "--body", "x", "--settings", str(path)]) == 1
    assert capsys.readouterr().err.startswith("forebay: ")
    monkeypatch.setenv("FOREBAY_MEMORY_LIMIT", "much")
    assert main(["send", str(kept), "orders", "--body", "x"]) == 2
    assert "memory_limit='much'" in capsys.readouterr().err
    assert len(bodies(kept)) == 5
