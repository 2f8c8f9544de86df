"""Type checkers see a wrong setting: the keywords of `open` are typed."""

from __future__ import annotations

import dataclasses
from typing import get_type_hints

import forebay
import forebay.aio
import forebay.testing
from forebay.dispatch.config.settings import Settings, SettingsFields


def test_the_typed_keywords_are_the_fields_of_settings() -> None:
    hints = get_type_hints(Settings)
    given = {entry.name: hints[entry.name] for entry in dataclasses.fields(Settings) if entry.init}
    assert list(get_type_hints(SettingsFields).items()) == list(given.items())


def wrong_settings() -> None:
    """Nobody calls it: `make lint` fails where a line needs no such comment, and where a right one needs any."""
    forebay.open("data", memory_limit="64MiB", sync="never")
    forebay.open("data", memory_limt="64MiB")  # type: ignore[call-arg]
    forebay.open("data", sync="sometimes")  # type: ignore[arg-type]
    forebay.open("data", background="no")  # type: ignore[arg-type]
    forebay.open("data", forebay.Settings(), max_checkpoint_adds=1)
    forebay.aio.open("data", background=1.5)  # type: ignore[arg-type]
    forebay.testing.MemoryForebay(sync="never")
    forebay.testing.MemoryForebay(memory_limit=1.5)  # type: ignore[arg-type]
    forebay.testing.MemoryForebay(disk=object())  # type: ignore[arg-type]
