"""The journal: records encoded and appended to preallocated files."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.benchmarks.calibration import AgainstFloor
from forebay.store.disk.disk import OsDisk
from forebay.store.disk.layout import JOURNAL
from forebay.store.environment.locks import OwnedLock, StoreLocks
from forebay.store.format.contents import Contents
from forebay.store.format.record import STATE
from forebay.store.journal.journal import Journal

RECORDS = 2000
SLICES = 40
BODY = bytes(range(256)) * 4
SLICE = Contents([b""] * 256, [BODY] * 256)


class Journals:
    """Makes journals in one directory, each with an empty data log of its own."""

    def __init__(self, directory: Path) -> None:
        self._disk = OsDisk(str(directory), maps=True)
        self._disk.make_directory(JOURNAL)
        self._data_log = 0

    def make(self) -> Journal:
        self._data_log += 1
        journal = Journal(
            self._disk,
            StoreLocks(OwnedLock(), OwnedLock(), OwnedLock()),
            bytes(16),
            max_file_bytes=32 << 20,
            clock_ms=lambda: 0,
            random_salt=lambda: 5,
            begin_data_log=lambda data_log: (STATE, 0, b"first record"),
        )
        journal.start(self._data_log, 1, 1)
        return journal


@pytest.fixture
def journals(tmp_path: Path) -> Journals:
    return Journals(tmp_path)


def test_messages_one_by_one(against_floor: AgainstFloor, journals: Journals) -> None:
    def append(journal: Journal) -> None:
        for sequence in range(RECORDS):
            journal.append_one(4, 1, sequence, 0, b"", BODY, len(BODY))

    against_floor(RECORDS, journals.make, append)


def test_messages_in_slices(against_floor: AgainstFloor, journals: Journals) -> None:
    def append(journal: Journal) -> None:
        for number in range(SLICES):
            journal.append_slice(4, 1, number * len(SLICE), 0, SLICE)

    against_floor(SLICES * len(SLICE), journals.make, append)


def test_acks(against_floor: AgainstFloor, journals: Journals) -> None:
    def append(journal: Journal) -> None:
        for sequence in range(RECORDS):
            journal.append_ack(4, 1, sequence, 1)

    against_floor(RECORDS, journals.make, append)
