"""The screen of a running store as lines of coloured spans, 80 columns wide.

The spans are independent of a terminal: they are printed plain, or coloured by terminal.py. A text in a span is text
and never markup, whatever is in it.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from .view import HOLDERS, OTHERS, ConsumerView, DataLogView, NoView, QueueView, StoreView

WIDTH: Final = 80
BAR_CELLS: Final = WIDTH - 2
GAUGE_CELLS: Final = 16
QUEUES_SHOWN: Final = 6
CONSUMERS_SHOWN: Final = 6
NAME_CELLS: Final = 22
SENTENCE_LINES: Final = 4
LIVE_TITLES: Final = ("nothing", "to 25 %", "to 50 %", "to 75 %", "more")
LIVE_STEPS: Final = (0.0, 0.25, 0.5, 0.75)
"""The steps of a data log's square. It has one of five looks: nothing live, up to a quarter, and so on."""


class Span(NamedTuple):
    text: str
    style: str = ""
    """A style by its name in rich, or "" for the terminal's own."""


Line = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The signs of a screen. Each part also differs by its sign, for people who see no colour."""

    parts: str
    """The signs of the bar: those of HOLDERS, then those of the other holders and of free memory."""
    squares: str
    """The signs of data logs, by LIVE_STEPS, starting with nothing live."""
    full: str
    empty: str
    ellipsis: str


BLOCKS: Final = Glyphs("█▓▒░▪·", "·░▒▓█", "█", "·", "…")
ASCII: Final = Glyphs("#=+-o.", ".-+=#", "#", ".", "~")

PART_STYLES: Final = ("red", "green", "cyan", "blue", "magenta", "dim")
SQUARE_STYLES: Final = ("dim", "red", "yellow", "cyan", "green")
FREE: Final = "free"


def plain(lines: Iterable[Line]) -> list[str]:
    """Return the lines as text."""
    return ["".join(span.text for span in line).rstrip() for line in lines]


def glyphs_of(encoding: str | None) -> Glyphs:
    """Return the signs that an encoding can write."""
    try:
        "".join((BLOCKS.parts, BLOCKS.squares, BLOCKS.ellipsis)).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


def screen(found: StoreView | NoView, glyphs: Glyphs = BLOCKS) -> list[Line]:
    """Return all lines of the screen."""
    if isinstance(found, NoView):
        return list(silence(found, glyphs))
    return [
        *_head(found, glyphs),
        *memory(found, glyphs),
        (),
        *screen_body(found, glyphs, queues=QUEUES_SHOWN, consumers=CONSUMERS_SHOWN, gap=((),)),
        (),
        *explained(found, glyphs),
    ]


def screen_body(
    view: StoreView, glyphs: Glyphs, *, queues: int, consumers: int, gap: Sequence[Line] = ()
) -> Iterator[Line]:
    """Yield queues, consumers and journal.

    queues, consumers: the most of them that are shown.
    gap: the lines between them.
    """
    yield from _queues(view, queues, glyphs)
    yield from gap
    yield from _consumers(view, consumers, glyphs)
    yield from gap
    yield from _journal(view, glyphs)


def silence(found: NoView, glyphs: Glyphs) -> Iterator[Line]:
    """Yield the lines that say that nothing is to be seen, and what to do."""
    yield (Span(clip(f"forebay top  {found.broker}", WIDTH, glyphs), "bold"),)
    yield ()
    yield from (Line((Span(line, "bold yellow"),)) for line in wrap(found.sentence))
    yield from (Line((Span(line),)) for line in wrap(found.advice))


def _head(view: StoreView, glyphs: Glyphs) -> Iterator[Line]:
    right = f"pid {view.pid:.0f}  {clock_text(view.time)}"
    left = clip(f"forebay top  {view.broker}", WIDTH - len(right) - 2, glyphs)
    yield Span(left, "bold"), Span(" " * (WIDTH - cells(left) - len(right))), Span(right, "dim")


def memory(view: StoreView, glyphs: Glyphs) -> Iterator[Line]:
    """Yield the bar of the memory limit with its legend, and the process's own memory beside it."""
    scale = max(view.limit_bytes, view.held_bytes)
    free = max(view.limit_bytes - view.held_bytes, 0.0)
    parts = [*view.parts.values(), free]
    yield from _row(
        f"memory limit {size(view.limit_bytes)}",
        f"held {size(view.held_bytes)}   process {_process(view)}",
    )
    if view.held_bytes > view.limit_bytes:
        yield (Span("more is held than the limit: it is falling as consumers settle", "yellow"),)
    widths = shared_cells(parts, BAR_CELLS) if scale > 0 else [0] * (len(parts) - 1) + [BAR_CELLS]
    bar = zip(glyphs.parts, widths, PART_STYLES, strict=True)
    yield (Span("["), *(Span(sign * width, style) for sign, width, style in bar if width), Span("]"))
    titles = (*HOLDERS.values(), OTHERS, FREE)
    legend = [
        Line((Span(sign, style), Span(f" {title} {size(held)}".ljust(25))))
        for sign, style, title, held in zip(glyphs.parts, PART_STYLES, titles, parts, strict=True)
    ]
    for begin in range(0, len(legend), 3):
        yield tuple(span for cell in legend[begin : begin + 3] for span in cell)
    if view.spilled_bytes:
        yield (Span(f"tmp-storage on disk: {size(view.spilled_bytes)} of non-persistent messages"),)


def _process(view: StoreView) -> str:
    said = [f"{size(held)} {name}" for held, name in ((view.resident_bytes, "RSS"), (view.unique_bytes, "USS")) if held]
    return ", ".join(said) or "unknown"


def _queues(view: StoreView, most: int, glyphs: Glyphs) -> Iterator[Line]:
    heads = ("depth", "ready", "in flight", "size", "in/s", "out/s")
    widths = (9, 9, 10, 11, 9, 9)
    yield _table_row("queues", heads, widths, "bold", glyphs)
    for queue in view.queues[:most]:
        yield _table_row(_queue_name(queue), _queue_cells(queue), widths, "", glyphs)
    others = view.other_queues + max(len(view.queues) - most, 0)
    if others:
        yield (Span(f"and {count(others)} more queue{'' if others == 1 else 's'}", "dim"),)
    elif not view.queues:
        yield (Span("none yet", "dim"),)


def _queue_name(queue: QueueView) -> str:
    return f"{queue.name} (paused)" if queue.is_paused else queue.name


def _queue_cells(queue: QueueView) -> tuple[str, ...]:
    counts = (queue.depth, queue.ready, queue.in_flight)
    rates = (queue.in_per_second, queue.out_per_second)
    return (*map(count, counts), size(queue.bytes), *map(count, rates))


def _consumers(view: StoreView, most: int, glyphs: Glyphs) -> Iterator[Line]:
    yield (
        Span(f"{'consumers':<{NAME_CELLS}} {'watermark, in RAM of what may be':<36}{'taken/s':>9} in flight", "bold"),
    )
    for consumer in view.consumers[:most]:
        yield _consumer(consumer, glyphs)
    others = len(view.consumers) - most
    if others > 0:
        yield (Span(f"and {others:,} more that are named", "dim"),)
    elif not view.consumers:
        yield (Span("none", "dim"),)


def _consumer(consumer: ConsumerView, glyphs: Glyphs) -> Line:
    high = consumer.high_watermark_bytes
    share = min(consumer.watermark_bytes / high, 1.0) if high else 0.0
    full = round(share * GAUGE_CELLS)
    mark = "slow" if consumer.is_slow else ""
    wish = f" {consumer.selector}" if consumer.selector else ""
    name = clip(f"{consumer.queue} #{consumer.number:.0f}{wish}", NAME_CELLS, glyphs)
    figures = f"{size(consumer.watermark_bytes)}/{size(high)}"
    held = f"{count(consumer.in_flight)} {mark}".strip()
    return (
        Span(pad(name, NAME_CELLS)),
        Span(" "),
        Span(glyphs.full * full, "yellow" if consumer.is_slow else "green"),
        Span(glyphs.empty * (GAUGE_CELLS - full), "dim"),
        Span(f" {figures:<19}{count(consumer.messages_per_second):>9} "),
        Span(f"{held:>9}"[:11], "yellow" if consumer.is_slow else ""),
    )


def _journal(view: StoreView, glyphs: Glyphs) -> Iterator[Line]:
    size_bytes, live_bytes = sum(one.bytes for one in view.data_logs), sum(one.live_bytes for one in view.data_logs)
    number = max(view.data_log_count, len(view.data_logs))
    share = f", {100 * min(live_bytes / size_bytes, 1):.0f} % live" if size_bytes else ""
    each = "" if number <= len(view.data_logs) else ", a square for several"
    what = f"{count(number)} data log{'' if number == 1 else 's'} of {size(size_bytes)}{share}{each}"
    yield Span("journal  ", "bold"), Span(what)
    squares = [_square(one, glyphs) for one in view.data_logs]
    gap = (Span(" "),) if 2 * len(squares) <= WIDTH else ()
    for begin in range(0, len(squares), WIDTH):
        yield tuple(span for square in squares[begin : begin + WIDTH] for span in (square, *gap))
    looks = zip(glyphs.squares, SQUARE_STYLES, LIVE_TITLES, strict=True)
    yield Span("live: ", "dim"), *(Span(f"{sign} {title}   ", style) for sign, style, title in looks)


def _square(data_log: DataLogView, glyphs: Glyphs) -> Span:
    share = data_log.live_bytes / data_log.bytes if data_log.bytes else 0.0
    step = sum(share > bound for bound in LIVE_STEPS)
    return Span(glyphs.squares[step], SQUARE_STYLES[step])


def explained(view: StoreView, glyphs: Glyphs) -> Iterator[Line]:
    """Yield problems, and the sentence that explains."""
    for problem in view.problems:
        yield from (Line((Span(line, "bold red"),)) for line in wrap(f"problem: {problem}")[:SENTENCE_LINES])
    lines = wrap(view.sentence)
    for number, line in enumerate(lines[:SENTENCE_LINES]):
        is_cut = number == SENTENCE_LINES - 1 < len(lines) - 1
        yield (Span(clip(line + glyphs.ellipsis, WIDTH, glyphs) if is_cut else line, "italic"),)


# ---------------------------------------------------------------------- cells and figures


def cells(text: str) -> int:
    """Return how many columns of a terminal a printable text takes."""
    return sum(_cells_of(one) for one in text)


def _cells_of(sign: str) -> int:
    if unicodedata.category(sign) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def clip(text: str, most: int, glyphs: Glyphs) -> str:
    """Return a text in at most so many columns. The end of a longer text is replaced by an ellipsis."""
    if cells(text) <= most:
        return text
    taken, used = "", cells(glyphs.ellipsis)
    for sign in text:
        if used + _cells_of(sign) > most:
            break
        taken, used = taken + sign, used + _cells_of(sign)
    return taken + glyphs.ellipsis


def pad(text: str, width: int) -> str:
    return text + " " * (width - cells(text))


def wrap(text: str) -> list[str]:
    """Return a text in lines of at most WIDTH columns."""
    if cells(text) == len(text):
        return textwrap.wrap(text, WIDTH)
    return textwrap.wrap(text, WIDTH // 2)  # some of its signs are two columns wide


def shared_cells(sizes: Sequence[float], total: int) -> list[int]:
    """Share out cells by size. They add up to total, and each part that is not empty has at least one."""
    whole = sum(sizes)
    if whole <= 0:
        return [0] * len(sizes)
    exact = [size / whole * total for size in sizes]
    found = [max(int(one), 1) if size > 0 else 0 for one, size in zip(exact, sizes, strict=True)]
    while (missing := total - sum(found)) != 0:
        step = 1 if missing > 0 else -1
        able = [at for at in range(len(found)) if sizes[at] > 0 and (step > 0 or found[at] > 1)]
        at = max(able, key=lambda at: (exact[at] - found[at]) * step)
        found[at] += step
    return found


def _row(left: str, right: str) -> Iterator[Line]:
    gap = max(WIDTH - cells(left) - cells(right), 2)
    yield Span(left, "bold"), Span(" " * gap), Span(right)


def _table_row(name: str, row: Sequence[str], widths: Sequence[int], style: str, glyphs: Glyphs) -> Line:
    said = "".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
    return (Span(pad(clip(name, NAME_CELLS, glyphs), NAME_CELLS), style), Span(said, style))


_UNITS: Final = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6))


def clock_text(seconds: float) -> str:
    """Return the time of day of seconds since the epoch, in UTC."""
    of_day = int(seconds) % 86_400
    return f"{of_day // 3600:02}:{of_day // 60 % 60:02}:{of_day % 60:02} UTC"


def count(number: float) -> str:
    """Return a count in at most seven columns."""
    for unit, least in _UNITS:
        if number >= least:
            return f"{number / least:,.2f}{unit}"[:7]
    return f"{number:,.0f}"


def size(size_bytes: float) -> str:
    """Return a size in at most ten columns."""
    units = iter(("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
    unit = next(units)
    while size_bytes >= 1024:
        size_bytes, unit = size_bytes / 1024, next(units)
    return f"{size_bytes:.{0 if unit == 'B' or size_bytes >= 99.95 else 1}f} {unit}"


def line_of(seen: StoreView | NoView) -> str:
    """Return a look as one line."""
    if isinstance(seen, NoView):
        return f"{seen.sentence} {seen.advice}"
    depth, into, out = (
        sum(figure)
        for figure in (
            [queue.depth for queue in seen.queues],
            [queue.in_per_second for queue in seen.queues],
            [queue.out_per_second for queue in seen.queues],
        )
    )
    return (
        f"{clock_text(seen.time)}  held {size(seen.held_bytes)} of {size(seen.limit_bytes)}, "
        f"USS {size(seen.unique_bytes)}, {count(depth)} pending, {count(into)} in/s, {count(out)} out/s, "
        f"{count(seen.data_log_count)} data logs"
    )
