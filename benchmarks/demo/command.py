"""The command `forebay demo`: a story of one to five minutes about one memory limit, with a verdict.

The parts are those of the load test: a broker process with a journal, killed with SIGKILL and recovered, and a
supervisor that accounts for every message.
"""

from __future__ import annotations

import os
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Final

from forebay.dispatch.commands.streams import Streams
from forebay.dispatch.screen.lines import Line, glyphs_of, plain
from forebay.store.disk.user_file import write_user_file
from forebay.store.errors import SettingsError

from ..load.command import check_writable, generated, write_result
from ..load.report import Report
from ..load.result import Run
from ..load.supervisor import Supervisor
from .deque_process import DequeProcess
from .keyboard import KEYS, KEYS_TEXT, Keyboard, keyboard
from .show import Frame, Mute, Show, Voice, card, picture
from .story import FAST_SECONDS, SECONDS_MIN, SLOW_SECONDS, Chapter, story

_Draw = Callable[[Sequence[Line]], object]

DISK_FACTOR: Final = 2.5
"""Disk that the demo may need, as a multiple of the bytes of all bodies."""


def add_demo(parser: ArgumentParser) -> None:
    """Define `forebay demo`."""
    keys = ", ".join(f"{key} {what}" for key, what in KEYS.items())
    parser.description = (
        "A story of one memory limit, with kill -9 and a verdict, shown live. "
        f"Keys, while it runs: {keys}. The verdict holds for what you did, too."
    )
    parser.add_argument("--fast", action="store_true", help="in one minute instead of five")
    parser.add_argument("--seconds", metavar="N", type=float, help="in about so many seconds")
    parser.add_argument("--record", metavar="FILE.svg", help="draw the fullest screen and the verdict")
    parser.add_argument("--json", metavar="FILE", help="write samples, latencies and verdict")
    parser.set_defaults(run=run_demo)


def run_demo(arguments: Namespace, streams: Streams) -> int:
    """Tell the story, which prints for itself."""
    return demo(arguments)


def demo(arguments: Namespace) -> int:
    """Run the demo; return 0 if all promises held, else 1. SettingsError: the arguments can't be run."""
    seconds = FAST_SECONDS if arguments.fast else SLOW_SECONDS
    if arguments.seconds is not None:
        seconds = arguments.seconds
    if not SECONDS_MIN <= seconds <= 3600:
        raise SettingsError(f"seconds={seconds} must be from {SECONDS_MIN:g} to 3600")
    if arguments.record is not None and find_spec("rich") is None:
        raise SettingsError("record: needs pip install 'forebay[terminal]'")
    check_writable("record", arguments.record)
    check_writable("json", arguments.json)
    chapters = story(seconds)
    runs: list[tuple[Chapter, Run]] = []
    recommended, fullest = 0.0, Frame([], -1)
    with TemporaryDirectory(prefix="forebay-demo-", ignore_cleanup_errors=True) as directory:
        _check_free_disk(directory, chapters)
        with _spectator() as (draw, voice, keys):
            for number, chapter in enumerate(chapters, start=1):
                place = os.path.join(directory, str(number))
                os.mkdir(place)
                with DequeProcess(chapter.scenario.memory, max(chapter.scenario.size)) as deque:
                    glyphs, hint = glyphs_of(sys.stdout.encoding), KEYS_TEXT if keys is not None else ""
                    show = Show(chapter, number, len(chapters), place, deque, glyphs, draw, voice, hint)
                    show.begin()
                    run = Supervisor(chapter.scenario, generated(chapter.scenario, 1), place, show, keys).run()
                    runs.append((chapter, run))
                recommended = recommended or show.recommended_limit_bytes
                fullest = max(fullest, show.fullest, key=lambda frame: frame.backlog)
                shutil.rmtree(place, ignore_errors=True)
    return _end(arguments, runs, recommended, fullest)


def _end(arguments: Namespace, runs: list[tuple[Chapter, Run]], recommended: float, fullest: Frame) -> int:
    verdict = card(runs, recommended)
    _print(verdict)
    if arguments.record is not None:
        svg = picture([*fullest.lines, (), *verdict], "forebay demo")
        write_user_file(arguments.record, svg.encode())
    if arguments.json is not None:
        write_result(arguments.json, 1, [run for _, run in runs])
    failed = [f"{run.scenario.name}/{name}" for _, run in runs for name in run.failed]
    print(f"failed: {', '.join(failed)}" if failed else "all held")
    return 1 if failed else 0


def _check_free_disk(directory: str, chapters: Sequence[Chapter]) -> None:
    needed = int(DISK_FACTOR * max(generated(chapter.scenario, 1).total_bytes for chapter in chapters))
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise SettingsError(
            f"the demo may need {needed >> 20:,} MiB of disk and {free >> 20:,} MiB are free in {directory}: "
            "set TMPDIR to another place, or take --fast"
        )


def _is_live() -> bool:
    return sys.stdout.isatty() and find_spec("rich") is not None


@contextmanager
def _spectator() -> Iterator[tuple[_Draw, Voice, Keyboard | None]]:
    """Yield a function that draws a screen, a voice that prints lines, and the keys.

    Of screen and voice, one does nothing.
    """
    if not _is_live():
        with Report() as report:
            yield lambda lines: None, report, None
        return
    from forebay.dispatch.screen.terminal import terminal

    with terminal(keeps=False) as shown, keyboard() as keys:
        yield shown.show, Mute(), keys


def _print(lines: Sequence[Line]) -> None:
    if not _is_live():
        print("\n".join(["", *plain(lines)]), flush=True)
        return
    from rich.console import Console

    from forebay.dispatch.screen.terminal import text_of

    Console(highlight=False).print(text_of(lines))
