"""Real power cuts of a real ext4: the next process finds all that was confirmed and nothing that was acknowledged.

A store works on a file system of its own, which shuts itself down at any
moment: under the running process, or right after the process was killed. A
process that still runs then is told of success by calls that were under way
and whose bytes are lost; what is confirmed after the cut does not count (see
`Power` in loop_disk.py, and docs/decisions/0016-power-cuts.md). A failure names
its seed, which repeats the work, but not the moment of the cut, and leaves
the image and the log of each life in pytest's temporary directory.

FOREBAY_POWER_CUTS: how many cuts all tests here make together; 10000 takes
hours. FOREBAY_SEED: the first seed.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

import pytest
from compiled import interpreted
from loop_disk import LOG_FLUSHED, LOG_LOST, LoopDisk, mounted, what_is_missing
from power_cut_workload import OPENED, Life, Model, recorded, settings_for

from forebay.store.disk import os_file
from forebay.store.disk.os_file import OsFile

pytestmark = [
    pytest.mark.soak,
    # From 3.12 on a fork beside another thread warns. Ours are ended by then: it is pytest's own watchdog that counts.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]

Way = Literal["running", "killed"]
"""The state of the process when the power is cut."""
WAYS: tuple[Way, ...] = ("running", "killed")

FIRST_SEED = int(os.environ.get("FOREBAY_SEED", "1"))
POWER_CUTS = int(os.environ.get("FOREBAY_POWER_CUTS", "400"))
SHARES = 2 * len(WAYS)
CUTS_MAX = 25
"""Cuts of one file system; then another seed makes a new one."""
RARE_CUTS = 1000
"""Cuts among which what is rare must be."""
EARLY_SHARE = 0.15
"""The share of lives whose power may be cut while the store opens."""
OPENING_SECONDS_MAX = 0.1
LIVE_SECONDS_MAX = 0.25
AFTERLIFE_SECONDS = (0.0, 0.0, 0.005, 0.02)
"""How long a process that still runs goes on after the cut."""
SILENCE_SECONDS_MAX = 60.0
POLL_SECONDS = 0.002


def pause(seconds: float) -> None:
    """Let the processes under test work for a while: here time is what is varied."""
    threading.Event().wait(seconds)


@dataclass
class Tally:
    """The counts of what was checked."""

    cuts: int = 0
    opened: int = 0
    confirmed: int = 0
    messages: int = 0
    acknowledged: int = 0
    with_replay: int = 0
    with_a_torn_tail: int = 0
    with_a_call_in_flight: int = 0

    def add(self, model: Model) -> None:
        self.opened += model.opened
        self.confirmed += model.confirmed
        self.messages += len(model.sent)
        self.acknowledged += len(model.gone)
        self.with_replay += model.replayed
        self.with_a_torn_tail += model.truncated


class Chain:
    """One file system, whose power is cut again and again."""

    def __init__(self, seed: int, way: Way, map_journal: bool, disk: LoopDisk, logs: Path, tally: Tally) -> None:
        self._seed = seed
        self._way: Way = way
        self._map_journal = map_journal
        self._disk = disk
        self._logs = logs
        self._tally = tally
        self._random = Random(f"{seed} {way} {map_journal}")
        self._model = Model()

    def run(self, cuts: int) -> None:
        life = 0
        try:
            for life in range(cuts):
                self._cut_one(life)
        except Exception as error:
            what = f"seed {self._seed}, {self._way}, map_journal={self._map_journal}, life {life}: {error}"
            raise AssertionError(what) from error
        finally:
            self._tally.add(self._model)

    def _cut_one(self, life: int) -> None:
        random, log = self._random, self._logs / f"life-{life}"
        child = self._start(log, life)
        try:
            if random.random() < EARLY_SHARE:
                pause(random.uniform(0, OPENING_SECONDS_MAX))
            else:
                self._wait_until_opened(child, log)
                pause(random.uniform(0, LIVE_SECONDS_MAX))
            if self._way == "running":
                self._disk.cut(random.choice((LOG_FLUSHED, LOG_LOST, LOG_LOST, LOG_LOST)))
                pause(random.choice(AFTERLIFE_SECONDS))
        finally:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        if self._way == "killed":
            self._disk.cut(LOG_LOST)
        self._tally.cuts += 1
        self._disk.remount()
        self._model.read(log)
        # A mapped page that the cut took away ends the process with another signal.
        expected = {-signal.SIGKILL, -signal.SIGBUS} if self._way == "running" else {-signal.SIGKILL}
        ended = os.waitstatus_to_exitcode(status)
        assert ended in expected, f"it ended before it was killed: {ended}"
        self._tally.with_a_call_in_flight += bool(self._model.open)

    def _start(self, log: Path, life: int) -> int:
        """Begin a life in a process of its own; returns its id."""
        random = self._random
        settings = settings_for(map_journal=self._map_journal, verify_on_open=random.random() < 0.2)
        seed = random.getrandbits(32)
        child = os.fork()
        if not child:
            try:
                Life(self._disk, log, settings, seed, life).live()
            finally:
                os._exit(1)
        return child

    def _wait_until_opened(self, child: int, log: Path) -> None:
        """Wait until the log says so, or until the process has ended, which the log explains."""
        deadline = time.monotonic() + SILENCE_SECONDS_MAX
        while f'["{OPENED}"'.encode() not in recorded(log):
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
            assert time.monotonic() < deadline, f"not open after {SILENCE_SECONDS_MAX} seconds"
            pause(POLL_SECONDS)


@pytest.fixture(scope="module")
def missing(tmp_path_factory: pytest.TempPathFactory) -> str | None:
    return what_is_missing(tmp_path_factory.mktemp("trial"))


@pytest.fixture
def needs_loop_device(missing: str | None) -> None:
    """Skips where there is none."""
    if missing is not None:
        pytest.skip(missing)


def cut_power(cuts: int, way: Way, map_journal: bool, directory: Path) -> Tally:
    """Make so many cuts, at most CUTS_MAX of each file system, and say what they showed."""
    tally = Tally()
    seed = FIRST_SEED
    while tally.cuts < cuts:
        folder = directory / f"{way}-{seed}"
        folder.mkdir()
        print(f"seed {seed}, {way}, map_journal={map_journal}")
        with mounted(folder) as disk:
            Chain(seed, way, map_journal, disk, folder, tally).run(min(CUTS_MAX, cuts - tally.cuts))
        shutil.rmtree(folder)
        seed += 1
    print(tally)
    return tally


@pytest.mark.usefixtures("needs_loop_device")
@pytest.mark.parametrize("map_journal", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_power_cut_loses_nothing_confirmed_and_brings_nothing_back(way: Way, map_journal: bool, tmp_path: Path) -> None:
    """FOREBAY_POWER_CUTS says how many."""
    share = max(POWER_CUTS // SHARES, 1)
    tally = cut_power(share, way, map_journal, tmp_path)
    assert tally.cuts == share
    assert share < CUTS_MAX or (tally.confirmed and tally.acknowledged and tally.with_replay)
    # A kill lets each record be written whole: a torn tail was in none of 30 and of 60 such cuts, and in some of 2,500.
    assert tally.with_a_torn_tail or share < (RARE_CUTS if way == "killed" else CUTS_MAX)


def sync_nothing(descriptor: int) -> None:
    """Replace a flush."""


def sync_unless_full(file: OsFile) -> None:
    """Replace `OsFile.sync`: forget the data logs that were sealed since the last sync."""
    if file.size() > file._position:
        os.fdatasync(file._descriptor)


@interpreted("puts a sync that does nothing in the place of a linked one")
@pytest.mark.usefixtures("needs_loop_device")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("forgotten", ["every sync", "syncs of sealed data logs"])
def test_store_that_forgets_syncs_is_found(
    way: Way, forgotten: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above is tested. What forks from this process has the same fault."""
    if forgotten == "every sync":
        monkeypatch.setattr(os_file, "_flush", sync_nothing)
    else:
        monkeypatch.setattr(OsFile, "sync", sync_unless_full)
    with pytest.raises(AssertionError, match="lost|back again|delivered again|in part|JournalCorrupt|branch"):
        cut_power(CUTS_MAX, way, False, tmp_path)
