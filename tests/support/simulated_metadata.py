"""A metadata store for simulated crashes: in memory, with every checkpoint that a restart may find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from random import Random

from forebay.store.format.times import DUE, EXPIRY, NEVER
from forebay.store.index.fingerprints import Row as FingerprintRow
from forebay.store.metadata.checksum import parts_of, row_of, survey, timed_rows
from forebay.store.metadata.metadata_store import MetadataDamaged, Snapshot
from forebay.store.numbering import UNLIMITED


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """The contents after one commit. A block that is None is damaged; if not is_readable, everything is."""

    position: int
    epoch: int
    root: bytes
    blocks: Mapping[tuple[int, int], bytes | None]
    fingerprints: Mapping[tuple[int, int], Mapping[str, bytes]] = field(default_factory=dict)
    is_readable: bool = True


class SimulatedMetadataStore:
    """A MetadataStore in memory. `crash` returns the store that a restart would find.

    Checkpoints share their blocks and never change, so each commit costs one dict.
    """

    is_persistent = True
    is_filling = False

    def __init__(self, checkpoint: _Checkpoint | None = None, *, transaction_adds: int = UNLIMITED) -> None:
        self._transaction_adds = transaction_adds
        # The last synced state, then every newer one; None: empty.
        self.history = [checkpoint]

    def load(self) -> Snapshot | None:
        """Return the newest checkpoint; None: the store is empty. MetadataDamaged if it is not readable."""
        checkpoint = self.history[-1]
        if checkpoint is None:
            return None
        if not checkpoint.is_readable:
            raise MetadataDamaged("simulated damage")
        blocks, _ = survey((lane, block, 0, 0, 0) for lane, block in sorted(checkpoint.blocks))
        earliest: dict[int, tuple[int, int]] = {}
        for kind in (DUE, EXPIRY):
            for lane in blocks:
                for time, _ in self.timed(kind, lane, (0, -1), NEVER, 1):
                    due, expiry = earliest.get(lane, (0, 0))
                    earliest[lane] = (time, expiry) if kind == DUE else (due, time)
        return Snapshot(checkpoint.position, checkpoint.epoch, checkpoint.root, blocks, earliest)

    def commit(
        self,
        position: int,
        epoch: int,
        root: bytes,
        puts: Sequence[tuple[int, int, bytes]],
        deletes: Sequence[tuple[int, int]] = (),
        fingerprints: Sequence[FingerprintRow] = (),
    ) -> None:
        """Add a checkpoint to the history. A crash may find it, or an earlier one that was not synced since."""
        before = self.history[-1]
        if before is not None and not before.is_readable:
            raise MetadataDamaged("simulated damage")
        if len(parts_of(puts, self._transaction_adds)) > 1:
            # What a crash between the transactions of one checkpoint leaves.
            self.history.append(_Checkpoint(0, 0, b"", {}, is_readable=False))
        blocks = {} if before is None else dict(before.blocks)
        for place in deletes:
            blocks.pop(place, None)
        blocks.update({(lane, block): packed for lane, block, packed in puts})
        named: dict[tuple[int, int], Mapping[str, bytes]] = {}
        if before is not None:
            named = {place: held for place, held in before.fingerprints.items() if place in blocks}
        for lane, block, name, data in fingerprints:
            named[lane, block] = {**named.get((lane, block), {}), name: data}
        self.history.append(_Checkpoint(position, epoch, root, blocks, named))

    def read_block(self, lane: int, block: int) -> bytes:
        """Return a packed block of the newest checkpoint. MetadataDamaged: it is absent or damaged."""
        checkpoint = self.history[-1]
        packed = None if checkpoint is None else checkpoint.blocks.get((lane, block))
        if packed is None:
            raise MetadataDamaged(f"block {block} of lane {lane} is absent or damaged")
        return packed

    def timed(self, kind: int, lane: int, behind: tuple[int, int], until_ms: int, most: int) -> list[tuple[int, int]]:
        """Return the next messages of a lane with a time up to until_ms, at most `most`."""
        checkpoint = self.history[-1]
        blocks = checkpoint.blocks if checkpoint is not None else {}
        rows = (row_of(*place, packed) for place, packed in blocks.items() if place[0] == lane and packed is not None)
        return timed_rows(rows, kind, behind, until_ms, most)

    def fingerprints(self, lane: int, first: int, last: int, names: Set[str]) -> list[tuple[int, str, bytes]]:
        """Return the fingerprints of these headers in a lane's blocks first to last."""
        checkpoint = self.history[-1]
        held = checkpoint.fingerprints if checkpoint is not None else {}
        places = [(lane, block) for block in range(first, last + 1)] if held else []
        return [
            (place[1], name, data) for place in places for name, data in held.get(place, {}).items() if name in names
        ]

    def resize_cache(self, cache_bytes: int) -> int:
        """Do nothing, because the store has no cache; return the wanted size."""
        return cache_bytes

    def clear(self) -> None:
        """Remove everything. As with files, a power cut may still bring it back."""
        self.history.append(None)

    def close(self) -> None:
        """Do nothing. The contents stay for `crash`."""

    def synced(self) -> None:
        """Make all commits durable, so that no crash finds an older state."""
        del self.history[:-1]

    def digest(self) -> int:
        """Return a hash of what a restart finds that loses no commit. O(blocks)."""
        now = self.history[-1]
        if now is None:
            return hash(None)
        named = frozenset((place, frozenset(held.items())) for place, held in now.fingerprints.items())
        return hash((now.position, now.epoch, now.root, frozenset(now.blocks.items()), named, now.is_readable))

    def crash(self, random: Random, *, damaged: bool = False) -> SimulatedMetadataStore:
        """Return what a restart may find: a state not older than the last synced one, or nothing.

        damaged: a state that `load` refuses, or one with a block that `read_block` refuses.
        """
        checkpoint = random.choice([*self.history, None])
        if damaged and checkpoint is not None and checkpoint.blocks and random.random() < 0.5:
            place = random.choice(sorted(checkpoint.blocks))
            checkpoint = replace(checkpoint, blocks={**checkpoint.blocks, place: None})
        elif damaged:
            checkpoint = _Checkpoint(0, 0, b"", {}, is_readable=False)
        return SimulatedMetadataStore(checkpoint, transaction_adds=self._transaction_adds)
