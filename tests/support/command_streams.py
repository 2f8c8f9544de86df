"""Streams of a command that a test holds: what it prints is text in RAM, and time passes when it waits."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from forebay.dispatch.commands.streams import Streams


class Terminal(io.StringIO):
    """A text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Captured:
    """Streams of a command, with the text that it printed."""

    def __init__(
        self,
        *,
        given: bytes = b"",
        wait: Callable[[float], object] = lambda seconds: None,
        out: io.StringIO | None = None,
        err: io.StringIO | None = None,
        monotonic: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.out = out if out is not None else io.StringIO()
        self.err = err if err is not None else io.StringIO()
        self.streams = Streams(self.out, self.err, io.BytesIO(given).read, wait, monotonic)

    @property
    def lines(self) -> list[str]:
        return self.out.getvalue().splitlines()


def json_rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the lines of JSON that commands have printed since the last call."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]
