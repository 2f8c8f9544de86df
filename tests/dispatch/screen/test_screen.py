"""The screen of a running store: what it says of given statuses, forged ones among them, in 80 columns."""

from __future__ import annotations

import copy
import io
import json
import random
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from command_streams import Captured
from rich.console import Console

import forebay
from forebay import Message
from forebay.__main__ import main
from forebay.dispatch.commands.running import run_top
from forebay.dispatch.screen.lines import (
    ASCII,
    BAR_CELLS,
    BLOCKS,
    WIDTH,
    cells,
    glyphs_of,
    line_of,
    plain,
    screen,
    shared_cells,
)
from forebay.dispatch.screen.terminal import terminal, text_of
from forebay.dispatch.screen.view import NoView, read_view, view_of

MIB = 1 << 20


def status(**fields: Any) -> dict[str, Any]:
    """A status of a store with something of everything."""
    orders = {"name": "orders", "depth": 1_234_567, "ready": 1_233_567, "in_flight": 1000, "bytes": 1200 * MIB}
    orders |= {"consumers": 2, "oldest_seconds": 9.0, "in_per_second": 12_345.6, "out_per_second": 987.1}
    first = {"queue": "orders", "number": 1, "selector": None, "prefetch": 1000, "in_flight": 0, "is_slow": False}
    first |= {"messages_per_second": 12_000.0, "watermark_bytes": 12 * MIB, "high_watermark_bytes": 16 * MIB}
    slow = first | {"number": 2, "selector": "kind='rare'", "in_flight": 1000, "is_slow": True}
    holders = {"dispatch_area": 12, "target_lists": 20, "pending_cache": 9, "head_queue_cache": 4, "index": 5}
    whole: dict[str, Any] = {
        "format": 1,
        "time": time.time(),
        "interval_seconds": 1.0,
        "pid": 4711,
        "resident_bytes": 93 * MIB,
        "process": {"process_bytes": 80 * MIB},
        "memory": {
            "limit_bytes": 64 * MIB,
            "held_bytes": 50 * MIB,
            "holders": {name: held * MIB for name, held in holders.items()},
        },
        "store": {"data_logs": 5},
        "queues": [orders],
        "other_queues": 3,
        "consumers": [first, slow],
        "data_logs": [{"first": n, "last": n, "bytes": 32, "live_bytes": 8 * n} for n in range(5)],
        "health": {"ok": True, "problems": []},
        "explain": "queue 'orders' has 1,234,567 messages: 1,000 are in flight.",
    }
    return whole | fields


def lines(**fields: Any) -> list[str]:
    return plain(screen(view_of(status(**fields), "localhost")))


def test_bar_shares_its_fixed_width_by_who_holds_the_limit() -> None:
    said = lines()
    [bar] = [line for line in said if line.startswith("[")]
    assert len(bar) == WIDTH and bar[-1] == "]"
    widths = [bar.count(sign) for sign in BLOCKS.parts]
    assert sum(widths) == BAR_CELLS and widths == [15, 24, 11, 5, 6, 17]
    assert "█ in flight 12.0 MiB      ▓ TargetLists 20.0 MiB    ▒ PendingCache 9.0 MiB" in said
    assert "░ HeadQueueCache 4.0 MiB  ▪ others 5.0 MiB          · free 14.0 MiB" in said
    [head] = [line for line in said if line.startswith("memory limit")]
    assert head.split("  ")[0] == "memory limit 64.0 MiB"
    assert head.endswith("held 50.0 MiB   process 93.0 MiB RSS, 80.0 MiB USS")


def test_bar_keeps_its_width_while_its_borders_move() -> None:
    seed = 4
    rng = random.Random(seed)
    for _ in range(500):
        sizes = [rng.choice((0, 1, rng.randrange(10**9))) for _ in range(6)]
        found = shared_cells(sizes, BAR_CELLS)
        assert sum(found) == (BAR_CELLS if any(sizes) else 0), f"seed {seed}: {sizes}"
        assert all((one > 0) == (size > 0) for one, size in zip(found, sizes, strict=True)), f"seed {seed}: {sizes}"


def test_unique_memory_that_is_older_than_resident_memory_is_bounded_by_it() -> None:
    assert "process 50.0 MiB RSS, 50.0 MiB USS" in "\n".join(lines(resident_bytes=50 * MIB))
    assert "process 80.0 MiB USS" in "\n".join(lines(resident_bytes=None))


def test_more_held_than_the_limit_is_said() -> None:
    memory = {"limit_bytes": 16 * MIB, "held_bytes": 20 * MIB, "holders": {"dispatch_area": 20 * MIB}}
    said = lines(memory=memory)
    assert "more is held than the limit: it is falling as consumers settle" in said
    assert f"[{'█' * BAR_CELLS}]" in said


def test_queues_come_by_depth_with_their_rates() -> None:
    rows = [
        {"name": f"q{n}", "depth": n, "ready": n, "in_flight": 0, "bytes": n, "in_per_second": 2 * n} for n in range(9)
    ]
    said = lines(queues=rows)
    first = next(at for at, line in enumerate(said) if line.startswith("queues ")) + 1
    assert [line.split()[0] for line in said[first : first + 6]] == ["q8", "q7", "q6", "q5", "q4", "q3"]
    assert said[first].split() == ["q8", "8", "8", "0", "8", "B", "16", "0"]
    assert said[first + 6] == "and 6 more queues"


def test_consumers_have_gauges_of_their_watermarks_and_slow_ones_are_named() -> None:
    said = lines()
    one, two = (line for line in said if line.startswith("orders #"))
    assert one.split() == ["orders", "#1", "█" * 12 + "·" * 4, "12.0", "MiB/16.0", "MiB", "12,000", "0"]
    assert two.startswith("orders #2 kind='rare'") and two.endswith("1,000 slow")


def test_data_logs_are_squares_by_live_share() -> None:
    said = lines()
    assert "journal  5 data logs of 160 B, 50 % live" in said and "· ░ ▒ ▓ █" in said
    [squares] = [line for line in screen(view_of(status(), "x")) if plain([line]) == ["· ░ ▒ ▓ █"]]
    assert len({span.style for span in squares if span.text.strip()}) == 5
    assert "a square for several" in "\n".join(lines(store={"data_logs": 1000}))


def test_problems_come_before_the_sentence_that_explains() -> None:
    said = lines(health={"ok": False, "problems": ["sync fails, 3 times so far"]})
    assert said[-2:] == ["problem: sync fails, 3 times so far", status()["explain"]]
    assert lines(explain="word " * 200)[-1].endswith("…")


def test_silence_is_said_with_what_to_do(tmp_path: Path) -> None:
    none = read_view(str(tmp_path), "localhost")
    assert isinstance(none, NoView)
    assert plain(screen(none))[2:] == [
        "No process says that it has this store open.",
        "Start the process. If it runs, it was opened with status_interval_seconds=None:",
        "leave that out.",
    ]
    (tmp_path / "status.json").write_text(json.dumps(status(time=1000.0)), encoding="utf-8")
    old = read_view(str(tmp_path), "localhost", now=1012.0)
    assert isinstance(old, NoView)
    assert old.sentence == (
        "The process that had this store open (pid 4711) has said nothing for 12 seconds: it is gone, or it stands"
        " still."
    )
    assert not isinstance(read_view(str(tmp_path), "localhost", now=1001.0), NoView)
    assert line_of(old).endswith(f"{old.sentence} {old.advice}")


# Whoever wrote the status.


NAMES = [
    "[bold]x[/bold]",
    "a\x1b[2Jb",
    "\u202eevil",
    "日本語" * 30,
    "e\u0301" * 90,
    "[/",
    "x" * 255,
    "\\[red]",
    "\ud800",
]
VALUES: list[Any] = [
    None, True, -1, 0, 1e308, float("inf"), float("nan"), 10**400, "", "text", [], {}, [[]], [None], {"a": []},
    *NAMES, [{}] * 3000, "\n" * 99,
]  # fmt: skip


def fit(found: dict[str, Any], glyphs: Any) -> None:
    said = plain(screen(view_of(found, "[red]broker"), glyphs))
    assert all(cells(line) <= WIDTH for line in said), max(said, key=cells)
    assert all(line.isprintable() for line in said) and len(said) < 60
    line_of(view_of(found, "x"))


def test_hostile_status_fits_and_never_raises() -> None:
    seed = 11
    rng = random.Random(seed)

    def spoil(part: Any) -> Any:
        if rng.random() < 0.15:
            return copy.deepcopy(rng.choice(VALUES))
        if isinstance(part, dict):
            return {key: spoil(value) for key, value in part.items()}
        return [spoil(value) for value in part] if isinstance(part, list) else part

    for turn in range(400):
        found = spoil(status())
        if isinstance(found, dict):
            try:
                fit(found, rng.choice((BLOCKS, ASCII)))
            except Exception as error:
                raise AssertionError(f"seed {seed}, turn {turn}") from error
    for value in VALUES:
        fit({name: value for name in status()}, BLOCKS)


@pytest.mark.parametrize("name", NAMES)
def test_name_is_shown_as_text_and_never_as_markup(name: str) -> None:
    found = view_of(status(queues=[status()["queues"][0] | {"name": name}], explain=name), name)
    console = Console(file=io.StringIO(), width=WIDTH, force_terminal=True, color_system=None, highlight=False)
    console.print(text_of(screen(found)))
    file = console.file
    assert isinstance(file, io.StringIO)
    printed = [line.rstrip() for line in file.getvalue().splitlines()]
    assert printed == plain(screen(found))
    assert "\x1b" not in file.getvalue()


@pytest.mark.parametrize(
    "content", ["", "[]", "{", "[" * 100_000, "nan", '{"format": 1}', json.dumps(status(time=10**400))]
)
def test_file_that_makes_no_sense_is_silence(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with forebay.open(tmp_path, memory_limit="8MiB", sync="never", background=False) as bay:
        bay.queue("orders").send(b"x")
    (tmp_path / "localhost" / "status.json").write_text(content, encoding="utf-8")
    assert main(["top", "--once", str(tmp_path)]) == 1
    assert "No process says that it has this store open." in capsys.readouterr().out
    assert main(["queues", str(tmp_path)]) == 0


# The command.


def test_once_prints_the_screen_of_a_running_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with forebay.open(tmp_path, memory_limit="8MiB", sync="never", background=False) as bay:
        bay.queue("orders").send_many(Message(b"x") for _ in range(3))
        written = tmp_path / "localhost" / "status.json"
        deadline = time.monotonic() + 30
        while not written.exists():
            assert time.monotonic() < deadline
            bay.step()
        assert main(["top", "--once", str(tmp_path)]) == 0
        said = capsys.readouterr().out
        assert "memory limit 8.0 MiB" in said and "0:orders has 3 messages" in said
        assert all(cells(line) <= WIDTH for line in said.splitlines())
    assert main(["top", "--once", str(tmp_path)]) == 1


def test_without_a_terminal_a_line_for_each_look(tmp_path: Path) -> None:
    with forebay.open(tmp_path, memory_limit="8MiB", sync="never", background=False):
        pass
    (tmp_path / "localhost" / "status.json").write_text(json.dumps(status()), encoding="utf-8")

    def wait(seconds: float) -> None:
        assert seconds == 2.5
        if len(captured.lines) == 2:
            raise KeyboardInterrupt

    captured = Captured(wait=wait)
    with pytest.raises(KeyboardInterrupt):
        run_top(Namespace(directory=str(tmp_path), once=False, json=False, interval=2.5), captured.streams)
    assert len(captured.lines) == 2
    assert captured.lines[0][12:] == (
        "  held 50.0 MiB of 64.0 MiB, USS 80.0 MiB, 1.23M pending, 12,346 in/s, 987 out/s, 5 data logs"
    )


def test_several_brokers_are_named_and_one_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        with forebay.open(tmp_path, broker_name=name, memory_limit="8MiB", sync="never", background=False) as bay:
            bay.queue("orders").send(b"x")
    assert main(["top", "--once", str(tmp_path)]) == 2
    assert f"name the directory of one, such as {tmp_path}/a, {tmp_path}/b" in capsys.readouterr().err
    assert main(["top", "--once", "--interval", "nan", str(tmp_path)]) == 2


def test_terminal_shows_one_screen_in_the_place_of_the_other() -> None:
    console = Console(file=io.StringIO(), width=WIDTH, height=50, force_terminal=True, highlight=False)
    with terminal(keeps=True, console=console) as shown:
        shown.show(screen(view_of(status(), "first")))
        shown.show(screen(view_of(status(), "second")))
    file = console.file
    assert isinstance(file, io.StringIO)
    assert "first" in file.getvalue() and "second" in file.getvalue() and file.getvalue().endswith("\x1b[?25h")


def test_signs_are_those_that_the_terminal_has() -> None:
    assert glyphs_of("utf-8") is BLOCKS
    assert glyphs_of("ascii") is glyphs_of(None) is glyphs_of("no such") is ASCII
    assert all(line.isascii() for line in plain(screen(view_of(status(), "x"), ASCII)))
