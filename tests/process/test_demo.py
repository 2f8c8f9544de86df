"""The demo: its story, the deque beside it, its screens of given figures, and one short run with its verdict."""

from __future__ import annotations

import json
import os
import pty
import select
import termios
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from forebay.__main__ import main
from forebay.benchmarks.demo.deque_process import DequeProcess
from forebay.benchmarks.demo.keyboard import KEYS_TEXT, LESS_BYTES, SLOW_PACE, Keyboard, keyboard
from forebay.benchmarks.demo.show import Mute, Show, card, picture
from forebay.benchmarks.demo.story import FAST_SECONDS, SECONDS_MIN, SLOW_SECONDS, Chapter, story
from forebay.benchmarks.load.evidence import Check
from forebay.benchmarks.load.orders import Order
from forebay.benchmarks.load.result import Run, Sample
from forebay.benchmarks.load.scenario import ConsumerPlan, DestinationPlan, Scenario
from forebay.benchmarks.load.schedule import Schedule
from forebay.benchmarks.load.supervisor import Supervisor
from forebay.benchmarks.load.workload import Generated
from forebay.dispatch.config.sizes import KIB, MIB
from forebay.dispatch.screen.lines import BLOCKS, WIDTH, Line, cells, plain

ANSWER_SECONDS = 30.0


@pytest.mark.parametrize("seconds", [SECONDS_MIN, FAST_SECONDS, SLOW_SECONDS])
def test_story_tells_of_each_act_in_order_and_takes_about_its_time(seconds: float) -> None:
    chapters = story(seconds)
    scheduled = 0.0
    for chapter in chapters:
        scenario = chapter.scenario
        assert scenario.rate is not None and scenario.messages == scenario.rate.messages
        scheduled += sum(duration for _, duration in scenario.rate.steps)
        shares = [caption.at for caption in chapter.captions]
        assert shares == sorted(shares) and shares[0] == 0 and shares[-1] < 1
        assert [act.at for act in scenario.acts] == sorted(act.at for act in scenario.acts)
        assert all(cells(caption.text) <= WIDTH for caption in chapter.captions)
    assert 0.4 * seconds <= scheduled <= 0.8 * seconds  # the rest is for what is drained
    assert [act.do for chapter in chapters for act in chapter.scenario.acts] == ["resize", "kill", "explain", "cleanup"]
    assert [chapter.scenario.persistent for chapter in chapters] == [True, True, False]


def test_burst_of_five_minutes_is_a_gibibyte() -> None:
    scenario = story(SLOW_SECONDS)[0].scenario
    assert scenario.rate is not None
    messages, seconds = scenario.rate.steps[-1]
    assert messages * seconds * min(scenario.size) >= 1 << 30
    assert story(FAST_SECONDS)[0].scenario.size == (KIB,)


def test_deque_holds_what_is_pending_until_its_limit_ends_it() -> None:
    with DequeProcess(16 * MIB, KIB) as deque:
        deque.tell(8_000, ANSWER_SECONDS)
        assert deque.ended_with is None and deque.held_bytes >= 6 * MIB
        held = deque.held_bytes
        deque.tell(9_000, ANSWER_SECONDS)
        assert deque.held_bytes > held
        deque.tell(1_000_000, ANSWER_SECONDS)
        assert deque.ended_with is not None and 9_000 < deque.ended_with < 20_000
        deque.tell(5, ANSWER_SECONDS)  # to nobody
        deque.tell(5, ANSWER_SECONDS)


# ---------------------------------------------------------------------- screens


def sample(backlog: int, phase: str = "flow") -> Sample:
    return Sample(3.2, phase, 10.0, 5.0, backlog, 9, 64 * MIB, 9, 0, 9, None, 0.0)


class Staged:
    """A show of the first chapter, whose store says what the test wants."""

    def __init__(self, tmp_path: Path, deque: DequeProcess) -> None:
        self.screens: list[list[str]] = []
        self.root = tmp_path / "localhost"
        self.root.mkdir()
        self.deque = deque
        self.chapter: Chapter = story(FAST_SECONDS)[0]
        self.show = Show(self.chapter, 1, 3, str(tmp_path), deque, BLOCKS, self._take, Mute())

    def _take(self, lines: Any) -> None:
        self.screens.append(plain(lines))
        assert all(cells(line) <= WIDTH for line in self.screens[-1])

    def say(self, **fields: Any) -> None:
        memory = {"limit_bytes": 64 * MIB, "held_bytes": 32 * MIB, "holders": {"pending_cache": 32 * MIB}}
        status: Mapping[str, Any] = {"format": 1, "time": time.time(), "interval_seconds": 1.0, "memory": memory}
        text = json.dumps({**status, "explain": "0:load has messages.", **fields})
        (self.root / "status.json").write_text(text, encoding="utf-8")


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Staged]:
    with DequeProcess(64 * MIB, KIB) as deque:
        yield Staged(tmp_path, deque)


def test_first_screen_is_there_before_the_store_says_anything(staged: Staged) -> None:
    staged.show.begin()
    [screen] = staged.screens
    assert screen[0].startswith("forebay demo  1 of 3: one memory limit, any backlog")
    assert screen[1] == staged.chapter.captions[0].text
    assert "the first figures come within two seconds" in screen


def test_screen_has_the_story_the_bar_the_deque_and_what_happened(staged: Staged) -> None:
    staged.say()
    staged.show.begin()
    staged.show.line(sample(5), done=0)
    staged.show.note(4.0, "resized to 16.0 MiB")
    screen = staged.screens[-1]
    assert screen[2] == "4.0 s  resized to 16.0 MiB" and "0:load has messages." in screen
    assert any(line.startswith("[▒▒▒") for line in screen)
    assert any(line.startswith("a plain deque with as many messages: ") for line in screen)
    assert len(screen) <= 24
    staged.show.line(sample(500), done=2 * staged.chapter.scenario.messages - 1)
    assert staged.screens[-1][1] == staged.chapter.captions[-1].text
    assert staged.show.fullest.backlog == 500


def test_screen_says_that_the_process_is_gone_and_that_the_deque_is(staged: Staged) -> None:
    staged.say()
    staged.deque.tell(1_000_000, ANSWER_SECONDS)
    staged.show.line(sample(5), done=0)
    staged.say(time=time.time() - 100)
    staged.show.line(sample(5, "recover"), done=0)
    screen = staged.screens[-1]
    assert "the process was killed; what it confirmed is in the journal" in screen
    assert any(line.startswith("a plain deque with the same 64.0 MiB ended: MemoryError at ") for line in screen)


def test_card_has_what_held_what_failed_and_the_limit_to_take() -> None:
    chapter = story(FAST_SECONDS)[0]
    run = Run(chapter.scenario, 1, 1, recoveries=[{"seconds": 0.25}])
    run.checks = [
        Check("count", True, "all there\nmore"),
        Check("process", True, "?"),
        Check("depth", False, "x " * 99),
    ]
    lines: list[Line] = card([(chapter, run)], 16 * MIB)
    said = plain(lines)
    assert said[2] == "    held    all there" and said[3].startswith("    FAILED  x x x")
    assert "    held    recovered from kill -9 in 0.25 s" in said
    assert said[-1] == "  recommended memory limit: 16.0 MiB (with more, hardly more comes from RAM)"
    assert all(cells(line) <= WIDTH for line in said)
    svg = picture(lines, "a [title]")
    assert svg.startswith("<svg") and "url(http" not in svg and "@font-face" not in svg


def test_screen_names_the_keys_where_there_are_some(tmp_path: Path, staged: Staged) -> None:
    screens: list[list[str]] = []

    def draw(lines: Any) -> None:
        screens.append(plain(lines))

    show = Show(staged.chapter, 1, 3, str(tmp_path), staged.deque, BLOCKS, draw, Mute(), KEYS_TEXT)
    show.begin()
    staged.say()
    show.line(sample(5), done=0)
    assert screens[0][-1] == screens[1][-1] == KEYS_TEXT and "k kill -9" in KEYS_TEXT
    assert len(screens[1]) <= 24 and cells(KEYS_TEXT) <= WIDTH


# ---------------------------------------------------------------------- keys


@pytest.fixture
def pressed() -> Iterator[tuple[Keyboard, int]]:
    """A keyboard, and where a test presses its keys."""
    here, there = os.pipe()
    yield Keyboard(here), there
    os.close(here)
    os.close(there)


def test_keys_are_orders_and_others_do_nothing(pressed: tuple[Keyboard, int]) -> None:
    keys, there = pressed
    assert keys.take() == []
    os.write(there, b"s?L\x1b[Ak\xff")
    assert keys.take() == [Order("pace", pace=SLOW_PACE), Order("resize", memory=LESS_BYTES), Order("kill")]
    os.write(there, b"fmec")
    assert [order.do for order in keys.take()] == ["pace", "resize", "explain", "cleanup"]


def test_last_key_ends_the_demo(pressed: tuple[Keyboard, int]) -> None:
    keys, there = pressed
    os.write(there, b"kq")
    with pytest.raises(KeyboardInterrupt):
        keys.take()


def test_terminal_gives_single_keys_and_is_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r") as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        before = termios.tcgetattr(theirs)
        with keyboard() as keys:
            assert keys is not None
            os.write(ours, b"k")
            assert select.select([keys], [], [], ANSWER_SECONDS)[0] and keys.take() == [Order("kill")]
        assert termios.tcgetattr(theirs) == before
    os.close(ours)


def test_without_a_terminal_there_are_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, encoding="utf-8") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        with keyboard() as keys:
            assert keys is None


class Watcher:
    """Gives one order after the other, each when the note of the one before has come."""

    def __init__(self, *orders: tuple[Order, str]) -> None:
        """orders: each with words of its note."""
        self._here, self._there = os.pipe()
        self._orders = list(orders)
        self._given: list[Order] = []
        self._awaited: str | None = None
        self.notes: list[str] = []

    def line(self, sample: Sample, done: int) -> None:
        is_noted = self._awaited is None or any(self._awaited in note for note in self.notes)
        if self._orders and is_noted and sample.phase in ("flow", "drain"):
            order, self._awaited = self._orders.pop(0)
            self._given.append(order)
            os.write(self._there, b"!")

    def note(self, seconds: float, text: str) -> None:
        self.notes.append(text)

    def fileno(self) -> int:
        return self._here

    def take(self) -> list[Order]:
        os.read(self._here, 64)
        given, self._given = self._given, []
        return given

    def close(self) -> bool:
        """Return whether all orders were carried out."""
        os.close(self._here)
        os.close(self._there)
        return not self._orders and any(str(self._awaited) in note for note in self.notes)


def test_what_is_done_by_hand_is_done_and_everything_holds(tmp_path: Path) -> None:
    rate = Schedule.parse("300:2s")
    worker = ConsumerPlan("worker")
    destinations = (DestinationPlan(producers=1),)
    messages = rate.messages or 1
    scenario = Scenario("hand", "orders", messages, destinations=destinations, rate=rate, consumers=(worker,))
    watcher = Watcher(
        (Order("pace", pace=20.0), "another pace"),  # so that there is something to do until the kill
        (Order("resize", memory=16 * MIB), "resized to 16.0 MiB"),
        (Order("explain"), "explained: Disk:"),
        (Order("cleanup"), "cleaned up:"),
        (Order("kill"), "killed with SIGKILL"),
    )
    workload = Generated(scenario.messages, scenario.size, destinations, seed=1)
    run = Supervisor(scenario, workload, str(tmp_path), watcher, watcher).run()
    assert watcher.close(), watcher.notes
    assert run.failed == [] and len(run.recoveries) == 1


# ---------------------------------------------------------------------- the command


def test_demo_without_a_terminal_tells_its_story_in_lines_and_all_holds(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "demo.svg"
    assert main(["demo", "--seconds", "3", "--record", str(file)]) == 0
    said = capfd.readouterr().out
    assert said.splitlines()[-1] == "all held"
    for words in (
        "1 of 3: ",
        "3 of 3: ",
        "resized to 16.0 MiB",
        "killed with SIGKILL",
        "recovered in",
        "explained: Disk:",
    ):
        assert words in said
    assert "\x1b" not in said and "forebay" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--seconds", "1"], "seconds=1.0 must be from 3"),
        (["--seconds", "nan"], "seconds=nan"),
        (["--record", "/missing/x.svg"], "record="),
    ],
)
def test_demo_that_cannot_be_run_ends_with_2_and_one_line(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *arguments]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert problem in line
