"""RESULTS.md: one part is measured and made again by a command, all else in it is written by hand and kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

BEGIN: Final = "<!-- measured: made by `make bench-peers` -->"
END: Final = "<!-- /measured -->"
PICTURE: Final = "figures.svg"


def write_results(path: Path, lines: Sequence[str], svg: str | None) -> None:
    """Replace what stands between the marks, and the picture beside the page. ValueError: it has no marks."""
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path.name} has no part between {BEGIN!r} and {END!r}")
    parts = [BEGIN, "", *lines, ""]
    if svg is not None:
        path.with_name(PICTURE).write_text(svg, encoding="utf-8")
        parts[2:2] = [f"![What was reached of each figure, must and aim marked]({PICTURE})", ""]
    path.write_text(before + "\n".join(parts) + "\n" + END + after, encoding="utf-8")
