"""Finds the stores in directories that a user names, also by a glob. It writes nothing and takes no lock."""

from __future__ import annotations

from collections.abc import Iterable
from glob import glob
from typing import Final

from ..store.disk.disk import OsDisk
from ..store.disk.layout import JOURNAL, LOCK, check_path, data_log_id
from ..store.errors import SettingsError

_GLOB: Final = frozenset("*?[")


class NoStore(SettingsError):
    """There is no store in a directory."""


def stores_of(directories: Iterable[str]) -> list[OsDisk]:
    """Return the stores in directories or globs of directories, each once. SettingsError names one that has none."""
    found = {disk.root: disk for directory in directories for path in matching(directory) for disk in stores_in(path)}
    return list(found.values())


def only_store(directory: str) -> OsDisk:
    """Return the one store in a directory. SettingsError: there are several, which it names, or none."""
    stores = stores_in(directory)
    if len(stores) > 1:
        names = ", ".join(f"{directory.rstrip('/')}/{broker_of(disk)}" for disk in stores[:5])
        raise SettingsError(f"{directory} has {len(stores):,} brokers: name the directory of one, such as {names}")
    return stores[0]


def broker_of(disk: OsDisk) -> str:
    """Return the name of the broker to which a store belongs."""
    return disk.root.rpartition("/")[2]


def matching(path: str) -> list[str]:
    """Return the directories with a store that a glob matches, sorted; or the path itself if it is not a glob."""
    check_path("directory", path)
    if not _GLOB.intersection(path) or _exists(path):
        return [path]
    matched = [match for match in sorted(glob(path)) if _holds_store(match)]
    if not matched:
        raise SettingsError(f"{path} matches no forebay directory")
    return matched


def _exists(path: str) -> bool:
    try:
        return OsDisk(path).exists("")
    except OSError:
        return False


def _holds_store(path: str) -> bool:
    try:
        return bool(stores_in(path))
    except (SettingsError, OSError):
        return False


def stores_in(directory: str) -> list[OsDisk]:
    """Return the stores in a directory that was given to `forebay.open`, by broker name; or the store that it is.

    SettingsError: there is none. NoStore, unless it is a file.
    """
    check_path("directory", directory)
    disk = OsDisk(directory)
    if _is_store(disk):
        return [disk]
    if not disk.exists(""):
        raise NoStore(f"{directory} does not exist")
    try:
        names = disk.list("")
    except NotADirectoryError:
        raise SettingsError(f"{directory} is not a directory") from None
    stores = [store for store in (OsDisk(f"{disk.root}/{name}") for name in names) if _is_store(store)]
    if not stores:
        raise NoStore(
            f"{directory} is not a forebay directory: neither it nor a directory in it has a journal/ with data logs"
        )
    return stores


def _is_store(disk: OsDisk) -> bool:
    try:
        # A directory journal/ alone may be anything. The lock file marks a store that was opened and not written to
        # yet.
        return disk.exists(JOURNAL) and (disk.exists(LOCK) or any(map(data_log_id, disk.list(JOURNAL))))
    except NotADirectoryError:
        return False
