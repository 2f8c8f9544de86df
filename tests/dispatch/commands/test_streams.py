"""What commands print to: tables with and without a terminal, progress with the time that is left."""

from __future__ import annotations

import pytest
from command_streams import Captured, Terminal

from forebay.dispatch.commands.streams import progress_text

HEAD = ("queue", "depth")
ROWS = [("orders", "1,234"), ("[red]x[/red]", "5")]


def test_table_is_plain_text_where_no_terminal_reads_it() -> None:
    captured = Captured()
    captured.streams.print_table(HEAD, ROWS, numbers=("depth",), indent="  ")
    assert captured.lines == ["  queue         depth", "  orders        1,234", "  [red]x[/red]      5"]


def test_table_is_drawn_by_rich_in_a_terminal_and_takes_no_cell_for_markup() -> None:
    pytest.importorskip("rich")
    captured = Captured(out=Terminal())
    captured.streams.print_table(HEAD, ROWS, numbers=("depth",))
    said = captured.out.getvalue()
    assert "[red]x[/red]" in said and "orders" in said and "1,234" in said


def test_table_in_a_terminal_is_plain_text_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.dispatch.commands.streams.find_spec", lambda name: None)
    captured = Captured(out=Terminal())
    captured.streams.print_table(HEAD, ROWS)
    assert captured.lines[0] == "queue         depth"


@pytest.mark.parametrize(
    ("done", "total", "seconds", "text"),
    [
        (0, 0, 0.0, "0 of 0 MiB"),
        (0, 512 << 20, 3.0, "0 of 512 MiB, 0 %"),
        (128 << 20, 512 << 20, 5.0, "128 of 512 MiB, 25 %, 15 s left"),
        (512 << 20, 512 << 20, 5.0, "512 of 512 MiB, 100 %, 0 s left"),
        (2 << 20, 1 << 20, 5.0, "2 of 2 MiB, 100 %, 0 s left"),
        (1 << 30, 1 << 40, 60.0, "1,024 of 1,048,576 MiB, 0 %, 17 h 3 min left"),
        (1 << 30, 11 << 30, 60.0, "1,024 of 11,264 MiB, 9 %, 10 min left"),
    ],
)
def test_progress_says_how_much_is_done_and_how_long_the_rest_takes(
    done: int, total: int, seconds: float, text: str
) -> None:
    assert progress_text(done, total, seconds) == text


def test_progress_is_shown_in_a_terminal_only_and_only_of_work_that_takes_a_while() -> None:
    now = [0.0]
    for err, is_seen in ((None, False), (Terminal(), True)):
        captured = Captured(err=err, monotonic=lambda: now[0])
        with captured.streams.progress(100 << 20) as progress:
            progress(1 << 20)
            assert captured.err.getvalue() == ""
            now[0] += 5.0
            progress(25 << 20, what="data-1\x1b.log")
        said = captured.err.getvalue()
        assert ("25 of 100 MiB, 25 %, 15 s left: data-1?.log" in said) is is_seen
        assert said.endswith("\r\x1b[K") is is_seen
        assert captured.out.getvalue() == ""
