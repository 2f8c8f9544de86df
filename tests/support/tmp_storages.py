"""A TmpStorage on a simulated disk, with an account that can be made to refuse and a limit that is watched."""

from __future__ import annotations

from random import Random

from simulated_disk import SimulatedDisk

from forebay.store.disk.layout import TMP_STORAGE
from forebay.store.stored_message import StoredMessage
from forebay.store.tmp.spilled_message import HEAD_BYTES, SpilledMessage, read_regions
from forebay.store.tmp.storage import TmpStorage

TIMESTAMP = 1_700_000_000_000
ALL = (0, 1 << 60)


class Ledger:
    """A memory account with a limit that a test sets."""

    def __init__(self, limit_bytes: int = 1 << 40) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.held_bytes_max = 0

    def reserve(self, charge_bytes: int) -> bool:
        assert charge_bytes > 0
        if self.held_bytes + charge_bytes > self.limit_bytes:
            return False
        self.held_bytes += charge_bytes
        self.held_bytes_max = max(self.held_bytes_max, self.held_bytes)
        return True

    def release(self, charge_bytes: int) -> None:
        self.held_bytes -= charge_bytes
        assert self.held_bytes >= 0


class Spilling:
    """A TmpStorage, with the disk and the account below it."""

    def __init__(self, *, limit_bytes: int = 1 << 30, max_file_bytes: int = 1 << 20) -> None:
        self.disk = SimulatedDisk()
        self.ledger = Ledger()
        self.disk.on_call = lambda call, name: self.watch_limit()
        self.limit_bytes = limit_bytes
        self.max_file_bytes = max_file_bytes
        self.storage = self.open()

    def open(self) -> TmpStorage:
        salt = Random(7)
        return TmpStorage(
            self.disk,
            self.ledger,
            limit_bytes=self.limit_bytes,
            max_file_bytes=self.max_file_bytes,
            random_salt=lambda: salt.getrandbits(32),
        )

    def files(self) -> dict[str, int]:
        """Return the size of each file in tmp-storage, by base name."""
        prefix = f"{TMP_STORAGE}/"
        image = self.disk.image()
        return {name.removeprefix(prefix): len(image[name]) for name in image if name.startswith(prefix)}

    def watch_limit(self) -> None:
        """Assert that the files keep the limit. The disk calls this before each change."""
        assert sum(self.files().values()) <= self.limit_bytes

    def read(
        self, owner: int, *runs: tuple[int, int], most_messages: int = 1 << 20, most_bytes: int = 1 << 30
    ) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        return read_regions(self.storage.plan(owner, runs, most_messages=most_messages, most_bytes=most_bytes).regions)

    def all_of(self, owner: int) -> list[StoredMessage]:
        messages, unreadable = self.read(owner, ALL)
        assert unreadable == []
        return messages

    def check(self) -> None:
        self.storage._check()
        assert self.ledger.held_bytes == self.storage.charge_bytes
        self.watch_limit()
        assert sum(self.files().values()) == self.storage.statistics.bytes


def numbered(first: int, count: int, size: int = 100) -> list[SpilledMessage]:
    """Return messages with consecutive sequences and different contents."""
    return [(n, b"p%d" % n, (b"%d " % n).ljust(size, b"."), TIMESTAMP + n) for n in range(first, first + count)]


def one_record(size: int) -> int:
    """Return the bytes on disk of one message of `numbered` with a sequence of one digit."""
    return HEAD_BYTES + 2 + size


def sparse(spilling: Spilling, kept: tuple[int, ...] = (3,)) -> None:
    """Make a file of ten messages of which few are live, and a second file that is written to."""
    spilling.storage.spill([1], numbered(0, 10, 1_000))
    spilling.storage.spill([2], numbered(10, 60, 1_000))
    for n in set(range(10)) - set(kept):
        spilling.storage.remove(1, n, n)
    spilling.check()


def two_files() -> Spilling:
    return Spilling(max_file_bytes=10 * one_record(1_000))
