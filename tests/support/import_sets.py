"""Helpers of the tests of import sets: sets staged and published on any disk, and all that is pending in a bay."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from forebay import Forebay
from forebay.store.disk.disk import Disk
from forebay.store.disk.layout import IMPORT
from forebay.store.format.message_properties import encode_properties
from forebay.store.ingest.manifest import Manifest, publish
from forebay.store.ingest.part import PART_BYTES_MAX, PartsWriter

NOW_MS = 1_700_000_000_000
FILLER = Random(7).randbytes(64 * 1024)


class Row(NamedTuple):
    destination: str
    body: bytes
    priority: int = 4
    timestamp: int = NOW_MS
    message_id: str | None = None


def stage(
    disk: Disk, load_id: str, tasks: Iterable[list[Row]], *, seed: int = 0, part_bytes_max: int = PART_BYTES_MAX
) -> Manifest:
    """Write the parts of one task after the other; nothing is published yet."""
    random = Random(f"{load_id} {seed}")
    disk.make_directory(IMPORT)
    set_id = random.randbytes(16)
    parts = []
    for task, rows in enumerate(tasks):
        writer = PartsWriter(
            disk,
            set_id,
            task << 16,
            now_ms=NOW_MS,
            random_bytes=random.randbytes,
            part_bytes_max=part_bytes_max,
        )
        for row in rows:
            properties = encode_properties({"load": load_id}, row.message_id)
            writer.add(row.destination, row.priority, row.timestamp, properties, row.body)
        parts += writer.finish()
    return Manifest(load_id, set_id, tuple(parts))


def bring(disk: Disk, load_id: str, *tasks: list[Row], seed: int = 0, part_bytes_max: int = PART_BYTES_MAX) -> Manifest:
    """Stage and publish a set; return its manifest."""
    manifest = stage(disk, load_id, tasks, seed=seed, part_bytes_max=part_bytes_max)
    publish(disk, manifest)
    return manifest


def rows_of(load_id: str, count: int, random: Random, queues: tuple[str, ...] = ("orders", "prices")) -> list[Row]:
    """Bodies tell themselves apart."""
    return [
        Row(
            random.choice(queues),
            f"{load_id}:{n}:".encode() + FILLER[:size],
            random.choice((4, 4, 4, 9)),
            NOW_MS + random.choice((0, 0, 0, n)),
        )
        for n in range(count)
        for size in (random.choice((0, random.randrange(64), random.randrange(3_000))),)
    ]


def pending(bay: Forebay) -> dict[tuple[str, int], list[bytes]]:
    """Return the bodies of all pending messages by queue and priority, in order."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for name in bay.destinations():
        for message in bay.queue(name).browse():
            found.setdefault((name, message.priority), []).append(message.body)
    return found


def expected(*sets: list[Row]) -> dict[tuple[str, int], list[bytes]]:
    """Return the bodies that all these sets bring, by queue and priority, in order."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for rows in sets:
        for row in rows:
            found.setdefault((row.destination, row.priority), []).append(row.body)
    return found
