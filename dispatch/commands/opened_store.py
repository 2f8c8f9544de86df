"""A store that a command opens for itself, without threads, by the settings of a file or of the environment."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ...store.disk.disk import OsDisk
from ...store.errors import SettingsError
from ..config.settings import Settings
from ..forebay import Forebay, open_forebay
from ..queue import Queue
from ..store_directories import broker_of
from ..store_status import printable
from .streams import Streams


def add_settings(parser: ArgumentParser) -> None:
    """Add the option --settings."""
    parser.add_argument(
        "--settings",
        metavar="FILE.toml",
        help="with which settings to open it (the environment's, such as FOREBAY_SYNC)",
    )


def chosen_settings(file: str | None) -> Settings:
    """Return the settings of a file, or those of the environment."""
    return Settings.from_env() if file is None else Settings.from_toml(file)


@contextmanager
def opened(disk: OsDisk, file: str | None, streams: Streams) -> Iterator[Forebay]:
    """Open a store for one command, and close it however the block ends. StoreLocked: a process has it open."""
    settings = replace(
        chosen_settings(file),
        broker_name=broker_of(disk),
        background=False,
        admin=False,
        status_interval_seconds=None,
        record_trace=None,
    )
    parent = disk.root.rpartition("/")[0] or "/"
    with streams.progress() as progress:
        bay = open_forebay(parent, settings, on_progress=progress)
    with bay:
        yield bay


def known_queue(bay: Forebay, name: str) -> Queue:
    """Return an existing queue. A mistaken name makes none. SettingsError: there is no such queue."""
    names = bay.destinations()
    if name not in names:
        there = ", ".join(map(printable, names[:10])) or "none"
        more = f" and {len(names) - 10:,} more" if len(names) > 10 else ""
        raise SettingsError(f"there is no queue {printable(name[:300])!r}; there are: {there}{more}")
    return bay.queue(name)
