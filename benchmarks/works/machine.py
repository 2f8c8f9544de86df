"""The machine: facts that a reader needs to compare figures, and nothing that identifies the owner."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import psutil

from forebay.dispatch.config.sizes import GIB
from forebay.store import message_store
from forebay.store.format.record import crc32


def machine() -> str:
    """Return cores, processor, memory and system."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    release = re.match(r"\d+(\.\d+)?", platform.release())
    return (
        f"{cores} cores of {_processor()}, {psutil.virtual_memory().total / GIB:.0f} GiB of RAM, "
        f"{platform.system()} {release.group() if release else ''}"
    )


def software() -> str:
    """Return the versions of interpreter, checksum and index, and whether the packages are compiled."""
    checksum = "zlib-ng on" if crc32.__module__.startswith("zlib_ng") else "zlib-ng off (zlib)"
    version = ".".join(map(str, sys.version_info[:3]))
    floors = "" if str(message_store.__file__).endswith(".py") else ", floors compiled by mypyc"
    return f"{platform.python_implementation()} {version}{floors}, {checksum}, SQLite {sqlite3.sqlite_version}"


def libraries() -> dict[str, str]:
    """Return the versions of the packages that forebay needs and is measured with, without extras."""
    required = {
        re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in requires("forebay") or () if "extra ==" not in line
    }
    found: dict[str, str] = {}
    for name in sorted(required | {"pytest-benchmark"}):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def file_system(directory: Path) -> str:
    """Return the kind of file system a directory lies on."""
    place = directory.resolve()
    mounts = {Path(found.mountpoint): found.fstype for found in psutil.disk_partitions(all=True)}
    return next((mounts[path] for path in (place, *place.parents) if path in mounts), "unknown")


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return model.group(1) if model else platform.machine()
