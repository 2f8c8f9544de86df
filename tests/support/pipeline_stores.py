"""Helpers of the tests of the pipeline: stores of every kind as directories, and tables compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from crashing import Left
from interplay import Interplay
from interplay_model import Model
from journals import data_logs
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

import forebay
from forebay import Message
from forebay.store.disk.layout import data_log_name


class LeftStores(Interplay):
    """The interplay workload of one seed, and what crashes leave of its disk."""

    def __init__(self, seed: int, images_max: int) -> None:
        super().__init__(seed, ("always", "interval", "never")[seed % 3])
        self._images_max = images_max
        self.images: list[SimulatedDisk] = []

    def crashes(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore) -> Iterator[Left]:
        if len(self.images) < self._images_max and self.random.random() < 0.1:
            is_killed = self.random.random() < 0.4
            self.images.append(
                disk.crash_process()
                if is_killed
                else disk.crash_power(self.random, self.random.choice(self.power_cuts))
            )
        return iter(())

    def live(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, model: Model, depth: int) -> None:
        super().live(disk, metadata, model, depth)
        self.images.append(disk.crash_process())


def random_stores(seeds: range, images_max: int = 3) -> Iterator[SimulatedDisk]:
    """Disks after random work with all features: some killed, some after a power cut, some whole."""
    for seed in seeds:
        yield from LeftStores(seed, images_max).run().images


def written(disk: SimulatedDisk, directory: Path, broker: str = "localhost") -> Path:
    """Write a simulated disk into a directory of the real one; return the directory."""
    for name, content in disk.image().items():
        path = directory / broker / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return directory


def damaged(disk: SimulatedDisk, random: Random) -> SimulatedDisk:
    """Return the disk with one bit of a data log inverted."""
    disk = disk.crash_process()
    sizes = {data_log_name(data_log): len(disk.image()[data_log_name(data_log)]) for data_log in data_logs(disk)}
    names = [name for name, size in sizes.items() if size]
    if names:
        name = random.choice(names)
        disk.flip_bit(name, random.randrange(sizes[name]), random.randrange(8))
    return disk


def rows_of_batches(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def tree(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Return the time of change and the content of everything in a directory."""
    return {
        str(path): (path.stat().st_mtime_ns, b"" if path.is_dir() else path.read_bytes())
        for path in [directory, *directory.rglob("*")]
    }


def messages_in(directory: Path, broker_name: str = "localhost") -> list[tuple[str, Message]]:
    """Return all messages that are pending after an open, in order."""
    with forebay.open(directory, broker_name=broker_name, memory_limit="16MiB", sync="never") as bay:
        assert not [report for report in bay.recovery.imports if report.problem is not None]
        return [(name, message) for name in bay.destinations() for message in bay.queue(name).browse()]
