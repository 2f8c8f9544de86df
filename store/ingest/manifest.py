"""An import set: messages from a process without the store's lock, which the store takes over at its next open.

    <directory>/<broker>/import/part-...     parts, written by any number of tasks, named by nobody yet
                                <id>.load    the manifest: written last, whole, under a name that tells the load id

    manifest   magic "FBIMPORT"  version u16  set id 16 bytes  messages u64  parts u32  length of the load id u8
               the load id, then for each part number u32, nonce u64, salt u32, bytes u64, messages u64; crc u32

A set exists from the moment when its manifest has that name, and then all of it exists. Parts of a losing attempt, or
of an unfinished load, are in no manifest and go. A load id that was published or taken is never published again:
an import set has its messages in one order, and the store may have begun with the first set.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from ..disk.disk import Disk
from ..disk.layout import IMPORT, import_load_id, import_name, import_part, import_part_name, validate_load_id
from ..format.imports import SET_ID_BYTES
from ..format.record import RecordDamaged, crc32
from ..journal.data_log import DATA_LOG_HEADER_BYTES, UnknownVersion, decode_data_log_header
from .part import PartFacts

MANIFEST_VERSION: Final = 1
PARTS_MAX: Final = 65_536
"""Most parts of one set, so that a manifest has at most 2 MiB."""

LEASE_MS: Final = 24 * 3600 * 1000
"""A part without a manifest is removed when it is older than this. Until then its load may be under way."""

NEW: Final = "new"
PUBLISHED: Final = "load"
TAKEN: Final = "taken"
REFUSED: Final = "refused"

_MAGIC: Final = b"FBIMPORT"
_HEAD: Final = struct.Struct(f"<8sH{SET_ID_BYTES}sQIB")
_PART: Final = struct.Struct("<IQIQQ")
_CRC: Final = struct.Struct("<I")
_BYTES_MAX: Final = _HEAD.size + 100 + PARTS_MAX * _PART.size + _CRC.size


class Manifest(NamedTuple):
    """The content of a set, in the order of ingestion."""

    load_id: str
    set_id: bytes
    parts: tuple[PartFacts, ...]

    @property
    def messages(self) -> int:
        return sum(part.messages for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """Total bytes of all parts."""
        return sum(part.size_bytes for part in self.parts)


def encode_manifest(manifest: Manifest) -> bytes:
    load_id = manifest.load_id.encode()
    head = _HEAD.pack(_MAGIC, MANIFEST_VERSION, manifest.set_id, manifest.messages, len(manifest.parts), len(load_id))
    data = b"".join((head, load_id, *(_PART.pack(*part) for part in manifest.parts)))
    return data + _CRC.pack(crc32(data))


def decode_manifest(data: bytes, load_id: str) -> Manifest:
    """Return the manifest of that load. RecordDamaged: these are not its bytes."""
    if len(data) < _HEAD.size + _CRC.size or crc32(data[: -_CRC.size]) != _CRC.unpack(data[-_CRC.size :])[0]:
        raise RecordDamaged("the manifest does not verify")
    magic, version, set_id, messages, count, id_bytes = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise RecordDamaged("this is no manifest")
    if version != MANIFEST_VERSION:
        raise RecordDamaged(f"a manifest of version {version}; this library reads version {MANIFEST_VERSION}")
    at = _HEAD.size + id_bytes
    if count > PARTS_MAX or len(data) != at + count * _PART.size + _CRC.size:
        raise RecordDamaged("the manifest has another length than it says")
    if data[_HEAD.size : at] != load_id.encode():
        raise RecordDamaged("the manifest is of another load")
    parts = tuple(PartFacts(*part) for part in _PART.iter_unpack(data[at : -_CRC.size]))
    numbers = [part.number for part in parts]
    if numbers != sorted(set(numbers)) or any(part.number == 2**32 - 1 for part in parts):
        raise RecordDamaged("the manifest's parts are not in order")
    manifest = Manifest(load_id, set_id, parts)
    if manifest.messages != messages or messages >= 1 << 63:
        raise RecordDamaged("the manifest's parts do not add up to its messages")
    return manifest


def read_manifest(disk: Disk, load_id: str, state: str = PUBLISHED) -> Manifest:
    """Return the manifest of a load. RecordDamaged: it does not verify. FileNotFoundError: there is none."""
    file = disk.open_for_reading(import_name(load_id, state))
    try:
        if file.size() > _BYTES_MAX:
            raise RecordDamaged(f"a manifest of {file.size():,} bytes cannot be")
        return decode_manifest(file.read(0, _BYTES_MAX), load_id)
    finally:
        file.close()


def published(disk: Disk) -> list[str]:
    """Return the load ids that wait to be taken over, sorted."""
    return [load_id for name in disk.list(IMPORT) if (load_id := import_load_id(name, PUBLISHED)) is not None]


def find_load(disk: Disk, load_id: str) -> tuple[str, Manifest] | None:
    """Return (PUBLISHED or TAKEN, the manifest) of a published load. None: there is none, or the store refused it."""
    for state in (PUBLISHED, TAKEN):
        with suppress(FileNotFoundError):
            return state, read_manifest(disk, load_id, state)
    return None


def publish(disk: Disk, manifest: Manifest) -> None:
    """Publish the set. Requires: the lock of import/, and find_load found nothing.

    RecordDamaged: a part is not as its writer said.
    """
    validate_load_id(manifest.load_id)
    if len(manifest.parts) > PARTS_MAX:
        raise RecordDamaged(f"{len(manifest.parts):,} parts are above {PARTS_MAX:,}: load fewer partitions at once")
    for part in manifest.parts:
        _check_size(disk, manifest.set_id, part)
    disk.sync_directory(IMPORT)  # the names of the parts before that of the manifest
    new = import_name(manifest.load_id, NEW)
    with suppress(FileNotFoundError):
        disk.remove(new)
    file = disk.open(new, create=True)
    try:
        file.append(encode_manifest(manifest))
        file.sync()
    finally:
        file.close()
    disk.rename(new, import_name(manifest.load_id, PUBLISHED))
    disk.sync_directory(IMPORT)


def _check_size(disk: Disk, set_id: bytes, part: PartFacts) -> None:
    try:
        file = disk.open_for_reading(import_part_name(set_id, part.number, part.nonce))
    except FileNotFoundError:
        raise RecordDamaged(f"part {part.number} is missing") from None
    try:
        if file.size() != part.size_bytes:
            raise RecordDamaged(f"part {part.number} has {file.size():,} bytes of {part.size_bytes:,}")
    finally:
        file.close()


def retire(disk: Disk, load_id: str, state: str, parts: Iterable[str]) -> None:
    """Remove the parts of a load that the store has taken or refused, and rename its manifest accordingly.

    Parts are removed first, so a crash leaves no part without a manifest that names it.
    """
    for name in parts:
        with suppress(FileNotFoundError):
            disk.remove(name)
    disk.sync_directory(IMPORT)
    disk.rename(import_name(load_id, PUBLISHED), import_name(load_id, state))
    disk.sync_directory(IMPORT)


def part_names(manifest: Manifest) -> list[str]:
    return [import_part_name(manifest.set_id, part.number, part.nonce) for part in manifest.parts]


def forget_taken(disk: Disk, remembered: frozenset[str]) -> None:
    """Remove the files about loads that the store itself has forgotten."""
    for name in disk.list(IMPORT):
        load_id = import_load_id(name, TAKEN)
        if load_id is not None and load_id not in remembered:
            disk.remove(import_name(load_id, TAKEN))


def remove_unnamed_parts(disk: Disk, own_set_id: bytes, now_ms: int) -> int:
    """Remove parts that no manifest names: those of the own set, and those of other sets that are older than the lease.

    Requires: the lock of import/. Return how many.
    """
    names = disk.list(IMPORT)
    named = _named_parts(disk, names)
    removed = 0
    for name in names:
        found = import_part(name)
        path = f"{IMPORT}/{name}"
        if found is not None and path not in named and (found[0] == own_set_id or _is_old(disk, path, now_ms)):
            with suppress(FileNotFoundError):
                disk.remove(path)
                removed += 1
    return removed


def _named_parts(disk: Disk, names: list[str]) -> set[str]:
    """Return the paths of the parts that manifests among these files name."""
    named: set[str] = set()
    for name in names:
        for state in (PUBLISHED, REFUSED):
            load_id = import_load_id(name, state)
            if load_id is not None:
                with suppress(RecordDamaged, FileNotFoundError):
                    named.update(part_names(read_manifest(disk, load_id, state)))
    return named


def _is_old(disk: Disk, name: str, now_ms: int) -> bool:
    """Return whether a part is older than the lease, by its header.

    False: the header does not verify, or a store has just taken the part.
    """
    try:
        file = disk.open_for_reading(name)
    except FileNotFoundError:
        return False
    try:
        return decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES)).created + LEASE_MS < now_ms
    except (RecordDamaged, UnknownVersion):
        return False
    finally:
        file.close()
