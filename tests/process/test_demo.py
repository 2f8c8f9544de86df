"""The demo: its story, the deque beside it, its screens of given figures, and one short run with its verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from forebay.__main__ import main
from forebay.benchmarks.demo.deque_process import DequeProcess
from forebay.benchmarks.demo.show import Mute, Show, card, picture
from forebay.benchmarks.demo.story import FAST_SECONDS, SECONDS_MIN, SLOW_SECONDS, Chapter, story
from forebay.benchmarks.load.evidence import Check
from forebay.benchmarks.load.result import Run, Sample
from forebay.dispatch.config.sizes import MIB
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


def test_deque_holds_what_is_pending_until_its_limit_ends_it() -> None:
    with DequeProcess(16 * MIB) as deque:
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
    with DequeProcess(64 * MIB) as deque:
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
