"""Type checkers see a wrong setting: the keywords of `open` are typed."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import forebay
from forebay.dispatch.config.settings import Settings, SettingsFields

CALLS = {
    "forebay.open('data', memory_limit='64MiB', sync='never')": "",
    "forebay.open('data', memory_limt='64MiB')": 'Unexpected keyword argument "memory_limt"',
    "forebay.open('data', sync='sometimes')": 'Argument "sync"',
    "forebay.open('data', background='no')": 'Argument "background"',
    "forebay.open('data', forebay.Settings(), max_checkpoint_adds=1)": "",
    "forebay.aio.open('data', background=1.5)": 'Argument "background"',
    "forebay.testing.MemoryForebay(sync='never')": "",
    "forebay.testing.MemoryForebay(memory_limit=1.5)": 'Argument "memory_limit"',
    "forebay.testing.MemoryForebay(disk=object())": 'Argument "disk"',
}


def test_the_typed_keywords_are_the_fields_of_settings() -> None:
    hints = get_type_hints(Settings)
    given = {entry.name: hints[entry.name] for entry in dataclasses.fields(Settings) if entry.init}
    assert list(get_type_hints(SettingsFields).items()) == list(given.items())


def complaints(tmp_path: Path, code: str) -> list[str]:
    """What mypy says of a module, line by line; "" for one that it accepts."""
    pytest.importorskip("mypy")
    (tmp_path / "forebay").symlink_to(Path(forebay.__file__).parent, target_is_directory=True)
    (tmp_path / "snippet.py").write_text(code)
    command = [sys.executable, "-P", "-m", "mypy", "--explicit-package-bases", "--follow-imports=silent", "snippet.py"]
    outcome = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "MYPYPATH": "."}, capture_output=True, text=True, check=False
    )
    said = [""] * (code.count("\n") + 1)
    for line in outcome.stdout.splitlines():
        if line.startswith("snippet.py:") and ": error: " in line:
            said[int(line.split(":")[1])] += line.partition(": error: ")[2]
    assert outcome.returncode in (0, 1), outcome.stdout + outcome.stderr
    return said


@pytest.mark.slow
def test_mypy_sees_a_wrong_setting(tmp_path: Path) -> None:
    lines = ["import forebay, forebay.aio, forebay.testing", *CALLS]
    said = complaints(tmp_path, "\n".join(lines) + "\n")[2:]
    for (call, expected), found in zip(CALLS.items(), said, strict=True):
        assert (expected in found) if expected else not found, f"{call}: {found}"
