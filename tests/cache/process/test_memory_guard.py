"""The memory guard: a process that grows beyond what the ledger explains is noted, with what is known of why."""

from __future__ import annotations

import logging

import pytest
from simulated_bay import SimulatedBay

from forebay.cache.process.memory_guard import (
    GROWTH_BYTES,
    LOG_SECONDS,
    LOOK_SECONDS,
    WORTH_A_WARNING_BYTES,
    MemoryGuard,
)

MIB = 1 << 20


class Process:
    """One that has as much memory as the test says."""

    def __init__(self) -> None:
        self.bytes = 100 * MIB
        self.free_bytes = 0
        self.looks = 0
        self.guard = MemoryGuard(self.unique_set_bytes, self.return_free_memory)

    def unique_set_bytes(self) -> int:
        self.looks += 1
        return self.bytes

    def return_free_memory(self) -> None:
        self.bytes -= self.free_bytes
        self.free_bytes = 0


def test_growth_that_follows_from_the_ledger_is_not_noted(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    process.guard.sample(0.0, 0)
    process.bytes += 64 * MIB * 5 // 4 + GROWTH_BYTES
    process.guard.sample(10.0, 64 * MIB)
    statistics = process.guard.statistics
    assert statistics is not None and statistics.process_bytes == statistics.expected_bytes
    assert (statistics.excess_bytes, statistics.why) == (0, "")
    assert not caplog.records


def test_what_the_process_had_before_does_not_count() -> None:
    process = Process()
    process.bytes = 5000 * MIB
    process.guard.sample(0.0, 10 * MIB)
    assert process.guard.statistics is not None and not process.guard.statistics.excess_bytes


def test_the_hosts_own_growth_is_noted_and_said_to_be_the_hosts(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    process.guard.sample(0.0, 0)
    process.bytes += GROWTH_BYTES + 30 * MIB
    process.guard.sample(10.0, 0)
    statistics = process.guard.statistics
    assert statistics is not None and statistics.excess_bytes == 30 * MIB
    assert statistics.why.startswith("they are not messages") and "look alike" in statistics.why
    (record,) = caplog.records
    assert record.name == "forebay.cache.memory" and "30 MiB more than follows from the 0 MiB" in record.getMessage()


def test_free_pages_of_the_c_library_are_given_back_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    process.guard.sample(0.0, 0)
    process.free_bytes = 50 * MIB
    process.bytes += GROWTH_BYTES + 30 * MIB
    process.guard.sample(10.0, 0)
    statistics = process.guard.statistics
    assert statistics is not None and statistics.excess_bytes == 0
    assert statistics.why == "" and not caplog.records


def test_an_excess_that_does_not_matter_is_in_the_statistics_alone(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    process.guard.sample(0.0, 0)
    process.bytes += GROWTH_BYTES + WORTH_A_WARNING_BYTES - 1
    for second in (10.0, 20.0, 30.0):
        process.guard.sample(second, 0)
    statistics = process.guard.statistics
    assert statistics is not None and statistics.excess_bytes == WORTH_A_WARNING_BYTES - 1 and statistics.why
    assert not caplog.records
    assert process.looks == 5, "why is found out once"


def test_it_looks_every_ten_seconds_and_says_it_every_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    process.guard.sample(0.0, 0)
    process.bytes += GROWTH_BYTES + WORTH_A_WARNING_BYTES
    for second in range(1, int(LOG_SECONDS) + 20):
        process.guard.sample(float(second), 0)
    assert len(caplog.records) == 2
    assert process.looks == 1 + int(LOG_SECONDS + 19) // int(LOOK_SECONDS) + 2


def test_housekeeping_looks_and_statistics_say_it(caplog: pytest.LogCaptureFixture) -> None:
    bay = SimulatedBay()
    assert bay.bay.statistics().process is None
    process = Process()
    bay.guard_with(process.guard)
    bay.bay.step()
    process.bytes += 100 * MIB
    bay.clock.advance(10.0)
    with caplog.at_level(logging.WARNING, "forebay.cache.memory"):
        bay.bay.step()
    found = bay.bay.statistics().process
    assert found is not None and found.process_bytes == 200 * MIB and found.excess_bytes > 50 * MIB
    assert len(caplog.records) == 1
