"""Process memory: the machine's RAM or the container's, and what this process has of it."""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from forebay.cache.process.process_memory import share_of_memory_bytes, total_memory_bytes, unique_set_bytes

UNLIMITED_V1 = "9223372036854771712"


class Groups:
    """A control group tree in a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.membership = folder / "cgroup"
        self.root = folder / "fs"
        self.root.mkdir()

    def belongs(self, *lines: str) -> None:
        self.membership.write_text("".join(line + "\n" for line in lines))

    def limit(self, file: str, value: object) -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")

    def total(self) -> int:
        return total_memory_bytes(membership=str(self.membership), root=str(self.root))


@pytest.fixture
def groups(tmp_path: Path) -> Groups:
    return Groups(tmp_path)


def test_without_control_groups_the_total_is_the_machines_ram(groups: Groups) -> None:
    assert groups.total() == psutil.virtual_memory().total


@pytest.mark.parametrize("unlimited", ["max", UNLIMITED_V1, 2**62])
def test_no_limit_leaves_the_machines_ram(groups: Groups, unlimited: object) -> None:
    groups.belongs("4:memory:/", "0::/")
    groups.limit("memory.max", unlimited)
    groups.limit("memory/memory.limit_in_bytes", unlimited)
    assert groups.total() == psutil.virtual_memory().total


def test_a_container_sees_its_own_group_as_the_root(groups: Groups) -> None:
    groups.belongs("0::/")
    groups.limit("memory.max", 2**26)
    assert groups.total() == 2**26


def test_a_container_that_sees_the_hosts_path_takes_the_root_for_its_group(groups: Groups) -> None:
    groups.belongs("5:cpu,cpuacct:/docker/0a1b", "4:memory:/docker/0a1b", "0::/")
    groups.limit("memory/memory.limit_in_bytes", 2**26)
    assert groups.total() == 2**26


def test_the_smallest_limit_around_a_service_counts(groups: Groups) -> None:
    groups.belongs("0::/system.slice/broker.service")
    groups.limit("system.slice/broker.service/memory.max", 2**27)
    assert groups.total() == 2**27
    groups.limit("system.slice/memory.max", 2**26)
    assert groups.total() == 2**26
    groups.limit("system.slice/broker.service/memory.max", "max")
    assert groups.total() == 2**26


def test_a_version_1_limit_counts_where_memory_shares_its_hierarchy(groups: Groups) -> None:
    groups.belongs("3:cpu,memory:/a/b")
    groups.limit("memory/a/b/memory.limit_in_bytes", 2**26)
    assert groups.total() == 2**26


def test_the_limit_of_another_group_does_not_count(groups: Groups) -> None:
    groups.belongs("0::/mine", "5:cpu:/other")
    groups.limit("other/memory.max", 2**26)
    groups.limit("memory/other/memory.limit_in_bytes", 2**26)
    assert groups.total() == psutil.virtual_memory().total


def test_a_group_name_that_is_not_utf_8_is_followed(groups: Groups) -> None:
    groups.membership.write_bytes(b"0::/caf\xe9:1\n")
    groups.limit("caf\udce9:1/memory.max", 2**26)
    assert groups.total() == 2**26


@pytest.mark.parametrize(("line", "file"), [("0::/", "memory.max"), ("4:memory:/", "memory/memory.limit_in_bytes")])
def test_a_share_is_one_of_the_container_where_that_has_a_limit(groups: Groups, line: str, file: str) -> None:
    groups.belongs(line)
    groups.limit(file, 2**26 + 3)
    assert share_of_memory_bytes(0.25, membership=str(groups.membership), root=str(groups.root)) == 2**24
    assert share_of_memory_bytes(1.0, membership=str(groups.membership), root=str(groups.root)) == 2**26 + 3
    assert share_of_memory_bytes(0.25) == total_memory_bytes() // 4


def test_a_limit_that_is_no_number_is_none(groups: Groups) -> None:
    groups.belongs("0::/a")
    for text in ("", "-1", "lots", "1e9", "\u0664"):
        groups.limit("a/memory.max", text)
        assert groups.total() == psutil.virtual_memory().total


def test_unique_set_grows_with_what_the_process_holds() -> None:
    size = 32 * 2**20
    before = unique_set_bytes()
    # Mapped, because an allocator may serve it from what earlier tests have freed.
    with mmap.mmap(-1, size) as held:
        held.write(b"x" * size)
        grown = unique_set_bytes() - before
    assert 0.9 * size < grown < 2.5 * size


@pytest.mark.parametrize("failure", [AttributeError("uss"), psutil.AccessDenied()], ids=["no notion of it", "hidden"])
def test_resident_bytes_stand_in_where_the_system_does_not_tell(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fail(_: psutil.Process) -> None:
        raise failure

    monkeypatch.setattr(psutil.Process, "memory_full_info", fail)
    resident = psutil.Process().memory_info().rss
    assert 0.9 * resident < unique_set_bytes() < 1.1 * resident


def test_importing_settings_does_not_import_psutil() -> None:
    program = (
        "import sys; from forebay.dispatch.config.settings import Settings; "
        "Settings(memory_limit=2**26); sys.exit('psutil' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
