"""The view of a demo's spectator: the screen of `forebay top` with the story around it, or plain lines.

The screen changes once a second; without a terminal there are the lines of the load test. Both are made from the
reports of the load test and from the status file of the broker process.
"""

from __future__ import annotations

import io
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from forebay.dispatch.screen.lines import (
    BAR_CELLS,
    WIDTH,
    Glyphs,
    Line,
    Span,
    clip,
    explained,
    memory,
    screen_body,
    size,
    wrap,
)
from forebay.dispatch.screen.view import NoView, StoreView, read_view

from ..load.evidence import Check
from ..load.report import Audience
from ..load.result import Run, Sample
from .deque_process import DequeProcess
from .story import Chapter

BROKER: Final = "localhost"
CARD_CHECKS: Final = ("count", "order", "acknowledged", "memory", "disk", "tmp-storage")
"""Checks that have a line on the card even if they hold. A failed check always has a line."""


_FONTS: Final = re.compile(r"@font-face \{.*?\}", re.DOTALL)

_SILENT: Final = {
    "recover": "the process was killed; what it confirmed is in the journal",
    "done": "all is consumed, and the store is closed",
}
"""Text for the screen while no broker process runs, by the phase of the run."""


class Voice(Audience, Protocol):
    """Tells a chapter in plain lines, as report.Report does."""

    def begin(self, title: str, work: int) -> None: ...


class Mute:
    """A voice that prints nothing, because the screen shows everything."""

    def begin(self, title: str, work: int) -> None: ...
    def line(self, sample: Sample, done: int) -> None: ...
    def note(self, seconds: float, text: str) -> None: ...


@dataclass(slots=True)
class Frame:
    """One screen that was shown."""

    lines: list[Line]
    backlog: int


class Show:
    """Shows one chapter while its run goes on.

    draw: takes the lines of each screen. voice: tells the same in plain lines.
    """

    def __init__(
        self,
        chapter: Chapter,
        number: int,
        of: int,
        directory: str,
        deque: DequeProcess,
        glyphs: Glyphs,
        draw: Callable[[Sequence[Line]], object],
        voice: Voice,
        hint: str = "",
    ) -> None:
        """Make the show of one chapter. hint: text about the keys."""
        self._chapter = chapter
        self._place = f"{number} of {of}"
        self._root = os.path.join(directory, BROKER)
        self._deque = deque
        self._glyphs = glyphs
        self._voice = voice
        self._draw_lines = draw
        self._hint = hint
        self._caption = ""
        self._note = ""
        self._phase = ""
        self._is_ended_told = False
        self._view: StoreView | None = None
        # Recommended for the traffic so far; 0: nothing is known.
        self.recommended_limit_bytes = 0.0
        # The screen with most pending messages.
        self.fullest = Frame([], -1)

    def begin(self) -> None:
        """Show the first screen, before there is anything to see."""
        scenario = self._chapter.scenario
        self._voice.begin(f"\n{self._place}: {self._chapter.title}\n{scenario.purpose}", 2 * scenario.messages)
        self._advance(0.0, 0.0)
        self._draw(0.0, 0)

    def line(self, sample: Sample, done: int) -> None:
        """Show the sample of a second, and tell the plain deque how many messages are pending."""
        self._advance(sample.seconds, done / (2 * self._chapter.scenario.messages))
        self._deque.tell(sample.backlog_messages)
        found = read_view(self._root, BROKER)
        if isinstance(found, StoreView):
            self._view = found
            self.recommended_limit_bytes = found.recommended_limit_bytes or self.recommended_limit_bytes
        self._phase = sample.phase
        self._voice.line(sample, done)
        if self._deque.ended_with is not None and not self._is_ended_told:
            self._is_ended_told = True
            self._voice.note(sample.seconds, self._deque_text())
        self._draw(sample.seconds, sample.backlog_messages)

    def note(self, seconds: float, text: str) -> None:
        """Show an event on the screen until the next one, and pass it on to the voice."""
        self._note = f"{seconds:.1f} s  {text}"
        self._voice.note(seconds, text)
        self._draw(seconds, -1)

    def _advance(self, seconds: float, share: float) -> None:
        caption = self._chapter.caption(share)
        if caption != self._caption:
            self._caption = caption
            self._voice.note(seconds, caption)

    def _draw(self, seconds: float, backlog: int) -> None:
        lines = self._lines(seconds)
        if backlog > self.fullest.backlog:
            self.fullest = Frame(lines, backlog)
        self._draw_lines(lines)

    def _lines(self, seconds: float) -> list[Line]:
        left, right = f"forebay demo  {self._place}: {self._chapter.title}", f"{seconds:.0f} s"
        lines: list[Line] = [
            (Span(left, "bold"), Span(" " * (WIDTH - len(left) - len(right))), Span(right, "dim")),
            (Span(clip(self._caption, WIDTH, self._glyphs), "bold yellow"),),
        ]
        notes = wrap(self._note)[:2]
        lines += [(Span(line, "cyan"),) for line in [*notes, *[""] * (2 - len(notes))]]
        if self._view is None:
            first = (Span("the first figures come within two seconds", "dim"),)
            return [*lines, first, *self._deque_lines(), (Span(self._hint, "dim"),)]
        body = screen_body(self._view, self._glyphs, queues=1, consumers=2)
        shown = [*lines, *memory(self._view, self._glyphs), *self._deque_lines(), (), *body, (), *self._explained()]
        return [*shown, *([(Span(self._hint, "dim"),)] if self._hint else [])]

    def _explained(self) -> Iterable[Line]:
        assert self._view is not None
        found = read_view(self._root, BROKER)
        if isinstance(found, NoView):
            return [(Span(_SILENT.get(self._phase, "the process has not said anything yet"), "bold red"),)]
        return explained(self._view, self._glyphs)

    def _deque_lines(self) -> list[Line]:
        deque, glyphs = self._deque, self._glyphs
        is_gone = deque.ended_with is not None
        share = 1.0 if is_gone else min(max(deque.held_bytes, 0) / deque.limit_bytes, 1.0)
        full = round(share * BAR_CELLS)
        style = "red" if is_gone else "yellow"
        bar = Span("["), Span(glyphs.full * full, style), Span(glyphs.empty * (BAR_CELLS - full), "dim"), Span("]")
        return [(Span(self._deque_text(), "bold red" if is_gone else "bold"),), bar]

    def _deque_text(self) -> str:
        deque = self._deque
        if deque.ended_with is not None:
            return (
                f"a plain deque with the same {size(deque.limit_bytes)} ended: "
                f"MemoryError at {deque.ended_with:,} messages"
            )
        return f"a plain deque with as many messages: {size(max(deque.held_bytes, 0))} of {size(deque.limit_bytes)}"


def card(runs: Sequence[tuple[Chapter, Run]], recommended_limit_bytes: float) -> list[Line]:
    """Return the verdict: what held in each chapter, and the memory limit that this traffic asks for."""
    lines: list[Line] = [(Span("verdict", "bold"),)]
    for chapter, run in runs:
        lines.append((Span(f"  {chapter.title}", "bold"),))
        for check in run.checks:
            if not check.held or check.name in CARD_CHECKS:
                lines += _check(check)
        if run.recoveries:
            longest = max(recovery["seconds"] for recovery in run.recoveries)
            lines.append((Span("    held    ", "green"), Span(f"recovered from kill -9 in {longest:.2f} s")))
    if recommended_limit_bytes:
        said = f"  recommended memory limit: {size(recommended_limit_bytes)} (with more, hardly more comes from RAM)"
        lines += [(), (Span(said, "bold"),)]
    return lines


def _check(check: Check) -> Iterator[Line]:
    word, style = ("held", "green") if check.held else ("FAILED", "bold red")
    for line in textwrap.wrap(check.text.split("\n")[0], WIDTH - 12):
        yield Span(f"    {word:<8}", style), Span(line)
        word = ""


def picture(lines: Iterable[Line], title: str) -> str:
    """Return an SVG of a screen."""
    from rich.console import Console

    from forebay.dispatch.screen.terminal import text_of

    console = Console(record=True, file=io.StringIO(), width=WIDTH, force_terminal=True, color_system="truecolor")
    console.print(text_of(lines))
    # Without the fonts that rich would have the viewer's browser load from elsewhere.
    return _FONTS.sub("", console.export_svg(title=title))
