"""What names no place is refused in words, whoever is given it, and never taken for the current directory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forebay
import forebay.aio
from forebay import Settings, SettingsError
from forebay.__main__ import main

NO_PATHS: tuple[Any, ...] = ("", b"", "\0", "a\0b", "\ud800")


async def _open_in_loop(path: Any) -> None:
    await forebay.aio.open(path)


GIVEN_A_PATH: dict[str, Callable[[Any], object]] = {
    "open": forebay.open,
    "aio.open": lambda path: asyncio.run(_open_in_loop(path)),
    "archive_directory": lambda path: Settings(archive_directory=path),
    "record_trace": lambda path: Settings(record_trace=path),
    "from_toml": Settings.from_toml,
    "from_activemq": Settings.from_activemq,
}


@pytest.fixture
def current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("given", GIVEN_A_PATH.values(), ids=GIVEN_A_PATH.keys())
@pytest.mark.parametrize("path", NO_PATHS, ids=repr)
def test_what_names_no_place_is_refused_and_nothing_is_made(
    given: Callable[[Any], object], path: Any, current_directory: Path
) -> None:
    with pytest.raises(SettingsError, match=r"must be a non-empty path|half a surrogate pair"):
        given(path)
    assert os.listdir(current_directory) == []


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("queues", ""),
    ("top", ""),
    ("health", ""),
    ("browse", "", "orders"),
    ("explain", ""),
    ("verify", ""),
    ("dump", ""),
    ("settings", ""),
    ("bench", "steady", "--messages", "10", "--dir", ""),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_empty_path_on_the_command_line_is_refused_and_nothing_is_made(
    command: tuple[str, ...], current_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    assert "must be a non-empty path without NUL characters" in capsys.readouterr().err
    assert os.listdir(current_directory) == []
