"""What the tests of files of the operating system share."""

from __future__ import annotations

import os

import pytest

from forebay.store.disk import os_file


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of what was written by system calls that keep the interpreter's lock."""
    made: list[int] = []

    def write(descriptor: int, data: bytes, length: int) -> int:
        made.append(length)
        return os.write(descriptor, data)

    monkeypatch.setattr(os_file, "_write", write)
    return made
