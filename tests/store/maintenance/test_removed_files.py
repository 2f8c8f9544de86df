"""The files of removed data logs: senders and consumers do not wait until the system has freed what they held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from message_stores import OpenStore, fill_data_logs
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore


class HeldFile:
    """A file that tells when nothing holds it any more."""

    def __init__(self, file: Any, on_let_go: Callable[[], None]) -> None:
        self._file = file
        self._on_let_go = on_let_go

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __del__(self) -> None:
        self._on_let_go()


class HoldingDisk(SimulatedDisk):
    """A disk whose files tell when nothing holds them any more."""

    def __init__(self) -> None:
        super().__init__()
        self.on_let_go: Callable[[str], None] = lambda name: None

    def open(self, name: str, *, create: bool = False) -> Any:
        return HeldFile(super().open(name, create=create), lambda: self.on_let_go(name))


def test_the_files_of_removed_data_logs_are_let_go_without_the_lock() -> None:
    disk = HoldingDisk()
    opened = OpenStore(disk, SimulatedMetadataStore())
    sent = fill_data_logs(opened, 3)
    opened.remove(sent[0], sent[-1])
    let_go: list[bool] = []
    disk.on_let_go = lambda name: let_go.append(opened.lock.is_owned())
    deleted = opened.store.cleanup.run().deleted
    assert let_go == [False] * len(deleted) and deleted
