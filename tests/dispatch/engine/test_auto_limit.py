"""memory_limit="auto": the limit follows what the machine and the process's control groups have left."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from delivering import fill
from simulated_bay import SimulatedBay

from forebay import DestinationPolicy
from forebay.cache.process.shortage import MemoryRoom, read_memory_figures

MIB = 1 << 20
TOTAL = 512 * MIB
TOP = TOTAL // 4


class Machine:
    """The files of /proc and /sys/fs/cgroup in a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.stalled_us = 0
        self.write("proc/self/cgroup", "0::/service")
        self.available(TOTAL)
        self.stall(0)

    def write(self, path: str, text: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def available(self, size_bytes: int) -> None:
        self.write("proc/meminfo", f"MemTotal: {TOTAL >> 10} kB\nMemFree: 1 kB\nMemAvailable: {size_bytes >> 10} kB")

    def stall(self, microseconds: int, path: str = "proc/pressure/memory") -> None:
        self.stalled_us += microseconds
        text = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={self.stalled_us}\nfull avg10=0.00 total=7"
        self.write(path, text)

    def group(self, used_bytes: int, *, inactive_bytes: int = 0, **limits: object) -> None:
        for name, limit in limits.items():
            self.write(f"sys/fs/cgroup/service/memory.{name}", limit)
        self.write("sys/fs/cgroup/service/memory.current", used_bytes)
        self.write("sys/fs/cgroup/service/memory.stat", f"anon 5\ninactive_file {inactive_bytes}\nactive_file 9")

    def bay(self, limit: str = "64MiB", **fields: Any) -> SimulatedBay:
        bay = SimulatedBay(memory_limit=limit, memory_figures=partial(read_memory_figures, str(self.root)), **fields)
        bay.bay.resize("auto")
        return bay


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def limit_of(bay: SimulatedBay) -> int:
    return bay.bay.statistics().memory.limit_bytes


def after(bay: SimulatedBay, seconds: float = 1.0) -> int:
    """Let time pass a second at a time; return the limit then."""
    for _ in range(round(seconds)):
        bay.clock.advance(1.0)
        bay.bay.step()
        bay.check()
    return limit_of(bay)


def test_within_a_second_of_a_shortage_the_limit_falls_by_what_is_missing_and_memory_is_given_back(
    machine: Machine,
) -> None:
    bay = machine.bay()
    bay.queue().subscribe()
    fill(bay, 20_000, size=2048)
    assert bay.budget.held_bytes > 30 * MIB
    assert after(bay) == 64 * MIB
    machine.available(TOTAL // 10 - 40 * MIB)
    assert abs(after(bay) - 24 * MIB) <= 1024
    assert bay.budget.held_bytes <= 24 * MIB


def test_it_never_falls_below_a_sixteenth_of_its_top_and_delivers_all_the_same(machine: Machine) -> None:
    bay = machine.bay()
    fill(bay, 2000, size=2048)
    machine.available(0)
    assert after(bay, 5) == TOP // 16
    with bay.queue().subscribe() as consumer:
        taken = 0
        while deliveries := consumer.take(100):
            taken += len(deliveries)
            consumer.ack(deliveries)
    assert taken == 2000


def test_it_grows_a_sixteenth_of_its_top_each_ten_seconds_up_to_a_quarter_of_the_ram(machine: Machine) -> None:
    bay = machine.bay()
    assert after(bay, 9) == 64 * MIB
    assert after(bay, 3) == 64 * MIB + TOP // 16
    assert after(bay, 200) == TOP


def test_a_shortage_puts_growth_off_for_ten_seconds(machine: Machine) -> None:
    bay = machine.bay("16MiB")
    after(bay, 8)
    machine.available(TOTAL // 10 - 4 * MIB)
    fallen = after(bay)
    assert abs(fallen - 12 * MIB) <= 1024
    machine.available(TOTAL)
    assert after(bay, 9) == fallen
    assert after(bay, 3) == fallen + TOP // 16


def test_it_grows_by_no_more_than_is_available_beyond_the_tenth(machine: Machine) -> None:
    bay = machine.bay("16MiB")
    machine.available(int(TOTAL * 0.1) + 2 * MIB)
    assert abs(after(bay, 12) - 18 * MIB) <= 1024


def test_tasks_that_wait_for_memory_cost_a_quarter_of_the_limit_a_look(machine: Machine) -> None:
    bay = machine.bay()
    after(bay)
    machine.stall(50_000)
    assert after(bay) == 64 * MIB, "a twentieth of the time is no shortage"
    machine.stall(500_000)
    assert after(bay) == 48 * MIB
    assert after(bay) == 48 * MIB


def test_pressure_of_the_own_group_counts_and_not_that_of_the_machine(machine: Machine) -> None:
    machine.stall(0, "sys/fs/cgroup/service/memory.pressure")
    bay = machine.bay()
    after(bay)
    machine.stall(900_000)
    assert after(bay) == 64 * MIB
    machine.stall(900_000, "sys/fs/cgroup/service/memory.pressure")
    assert after(bay) == 48 * MIB


@pytest.mark.parametrize("limits", [{"max": 200 * MIB, "high": "max"}, {"max": 400 * MIB, "high": 200 * MIB}])
def test_the_lower_of_high_and_max_is_the_groups_limit_and_unused_file_pages_count_as_free(
    machine: Machine, limits: dict[str, Any]
) -> None:
    machine.group(100 * MIB, **limits)
    bay = machine.bay()
    assert after(bay) == 50 * MIB, "a quarter of the group's limit is the top"
    machine.group(190 * MIB, inactive_bytes=30 * MIB, **limits)
    assert after(bay) == 50 * MIB
    machine.group(190 * MIB, **limits)
    assert after(bay) == 40 * MIB


def test_a_group_of_version_1_is_followed_too(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "4:cpu,memory:/service")
    for name, value in (("limit_in_bytes", 100 * MIB), ("usage_in_bytes", 40 * MIB)):
        machine.write(f"sys/fs/cgroup/memory/service/memory.{name}", value)
    machine.write("sys/fs/cgroup/memory/service/memory.stat", f"cache 1\ntotal_inactive_file {10 * MIB}")
    figures = read_memory_figures(str(machine.root))
    assert figures is not None
    assert figures.rooms[-1] == MemoryRoom(100 * MIB, 70 * MIB)


def test_a_number_ends_it_and_auto_begins_it_again_from_there(machine: Machine) -> None:
    bay = machine.bay()
    bay.bay.resize("32MiB")
    machine.available(0)
    assert after(bay, 3) == 32 * MIB
    bay.bay.resize("auto")
    assert after(bay) == TOP // 16


def test_the_floor_leaves_room_for_what_policies_reserve(machine: Machine) -> None:
    bay = machine.bay(policies={"orders": DestinationPolicy(memory_reserve="8MiB")})
    machine.available(0)
    assert 16 * MIB < after(bay) < 40 * MIB


def test_a_system_that_tells_nothing_leaves_the_limit_and_the_log_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_memory_figures(str(tmp_path)) is None
    bay = SimulatedBay(memory_limit="64MiB", memory_figures=partial(read_memory_figures, str(tmp_path)))
    bay.bay.resize("auto")
    with caplog.at_level(logging.WARNING):
        assert after(bay, 5) == 64 * MIB
    told = [record for record in caplog.records if "stays at 64 MiB" in record.getMessage()]
    assert len(told) == 1


@pytest.mark.parametrize(
    "text", ["", "some", "some avg10=1 total=x", "nonsense\x00", "MemTotal: many kB", "9" * 70_000]
)
def test_files_that_say_something_else_are_as_if_they_were_not_there(machine: Machine, text: str) -> None:
    machine.group(1, max=100 * MIB)
    for name in ("proc/meminfo", "proc/pressure/memory", "sys/fs/cgroup/service/memory.current"):
        machine.write(name, text)
    figures = read_memory_figures(str(machine.root))
    assert figures is None or figures.stalled_seconds is None


def test_a_store_may_be_opened_with_it() -> None:
    bay = SimulatedBay(memory_limit="auto")
    assert bay.settings.memory_limit_bytes >= 4 * MIB
    bay.check()
