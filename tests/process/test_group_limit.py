"""memory_limit="auto" under the kernel's own limit: in a real control group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import limited_program
import psutil
import pytest

from forebay.cache.process.process_memory import CGROUP_MEMBERSHIP, CGROUP_ROOT, memory_groups

MIB = 1 << 20
GROUP_BYTES = 192 * MIB
BACKLOG_BYTES = 80 * MIB
HOST_BYTES = 164 * MIB
"""Beside a quarter of the group's limit it does not fit, and beside a small store it does."""


def make_group() -> tuple[Path, str] | None:
    """Return a new control group below this process's own, and the name of the file of its limit; None: not allowed."""
    for directory, limit_name in reversed(list(memory_groups(CGROUP_MEMBERSHIP, CGROUP_ROOT))):
        group = Path(directory) / f"forebay-test-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            if (group / limit_name).exists():
                return group, limit_name
            group.rmdir()
    return None


def can_limit() -> bool:
    made = make_group()
    if made is not None:
        made[0].rmdir()
    # With swap a kernel need not kill anybody.
    return made is not None and not psutil.swap_memory().total


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_limit(), reason="needs the right to make control groups of memory, and no swap"),
]


@pytest.fixture
def members() -> Iterator[Path]:
    """The file that takes a process into a group of 192 MiB."""
    made = make_group()
    assert made is not None
    group, limit_name = made
    (group / limit_name).write_text(str(GROUP_BYTES))
    yield group / "cgroup.procs"
    group.rmdir()


def host(members: Path, directory: Path, memory_limit: str) -> subprocess.CompletedProcess[str]:
    sizes = (str(BACKLOG_BYTES), str(HOST_BYTES))
    command = [sys.executable, "-P", limited_program.__file__, str(members), str(directory), memory_limit, *sizes]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_with_auto_a_host_that_needs_the_memory_gets_it_and_nobody_is_killed(members: Path, tmp_path: Path) -> None:
    ended = host(members, tmp_path, "auto")
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) < GROUP_BYTES // 8, "a quarter of the group's limit at the begin"


def test_with_a_fixed_limit_the_kernel_kills_the_same_host(members: Path, tmp_path: Path) -> None:
    assert host(members, tmp_path, "48MiB").returncode == -signal.SIGKILL
