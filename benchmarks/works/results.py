"""RESULTS.md: replace its measured parts, and keep the rest, which is written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

MEASURED: Final = "measured"
BROKERS: Final = "brokers"
PICTURE: Final = "figures.svg"


def marks(part: str) -> tuple[str, str]:
    """Return the marker lines before and after a part."""
    return f"<!-- {part}: made by `make bench-peers` -->", f"<!-- /{part} -->"


def write_results(path: Path, part: str, lines: Sequence[str], svg: str | None = None) -> None:
    """Replace the text between the marks of a part, and the picture beside the page.

    Raises ValueError if the page has no such marks.
    """
    text = path.read_text(encoding="utf-8")
    mark, end_mark = marks(part)
    before, begin, rest = text.partition(mark)
    _, end, after = rest.partition(end_mark)
    if not begin or not end:
        raise ValueError(f"{path.name} has no part between {mark!r} and {end_mark!r}")
    parts = [mark, "", *lines, ""]
    if svg is not None:
        path.with_name(PICTURE).write_text(svg, encoding="utf-8")
        parts[2:2] = [f"![What was reached of each figure, must and aim marked]({PICTURE})", ""]
    path.write_text(before + "\n".join(parts) + "\n" + end_mark + after, encoding="utf-8")
