"""TmpStorage: files for non-persistent messages for which RAM has no room.

Batches are appended to files that are never synced. Places, owners and the salts of the checksums are only in RAM, so a
crash loses everything, and the next open deletes the files. The limit is checked before each write. A file is deleted
when no owner holds a message in it. A file with few live bytes is rewritten.

An *owner* is a number, such as that of a lane. Several owners may hold one message. It is stored once, and deleted when
the last owner has removed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..disk.disk import NO_SPACE, Disk, known_free_bytes
from ..disk.layout import TMP_STORAGE
from ..environment.account import Account
from ..environment.late_log import LateLogger
from ..errors import Closed, ForebayError, SpillFailed, StoreFull
from ..journal.regions import REGION_BYTES_MAX
from ..structures.bits import runs_of_ones
from .chunk import CHUNK_BYTES_MAX, CHUNK_MESSAGES_MAX, SEQUENCE_SPREAD_MAX, Chunk, ChunkShare, TmpFile
from .spilled_message import SpilledMessage, message_bytes, read_regions
from .tmp_files import BATCH_BYTES_MAX, SpillBatch, TmpFiles
from .tmp_owner import TmpOwner
from .tmp_plan import TmpPlan, TmpPlanBuilder

logger = LateLogger("forebay.store.tmp_storage")

PLACE_CHARGE_BYTES: Final = 9
OFFSET_CHARGE_BYTES: Final = 4
"""Charged in addition for a place in a chunk whose messages are not contiguous."""
CHUNK_CHARGE_BYTES: Final = 720
SHARE_CHARGE_BYTES: Final = 180
OWNER_CHARGE_BYTES: Final = 320
"""Charge of an owner. Like the three above, it includes the growth reserve of array and the objects around it."""

REWRITE_STEP_BYTES: Final = 256 * 1024
"""Bytes of messages that one step of rewriting moves, or a little more."""

_Fitting = list[list[int]]
"""For each owner, the masks of the messages of a batch that become separate shares."""


@dataclass(frozen=True, slots=True)
class TmpStorageStatistics:
    """Sizes and counts of tmp-storage."""

    bytes: int
    """Bytes that the files take on the disk, dead messages included."""
    bytes_max: int
    """Most bytes that the files ever took."""
    messages: int
    """Messages stored, counted once however many owners they have."""


class Compaction(NamedTuple):
    """The result of one step of rewriting."""

    file: int
    messages: int
    moved_bytes: int
    freed_bytes: int
    """Size of the deleted file, or 0 while it has more to move."""


class TmpStorage:
    """The files, and the messages that each owner holds in them.

    The state lock guards them. Every method requires it.
    """

    def __init__(
        self,
        disk: Disk,
        account: Account,
        *,
        limit_bytes: int,
        max_file_bytes: int,
        random_salt: Callable[[], int],
        paid_buffer_bytes: int = 0,
        on_space_freed: Callable[[], None] = lambda: None,
    ) -> None:
        """Delete the files of an earlier process. Requires: the directory's lock. StoreFailed: they can't be listed.

        paid_buffer_bytes: bytes of a write's buffer that are charged elsewhere at all times. If a write needs more, the
            account pays for the rest.
        on_space_freed: called when a file is gone.
        """
        self._disk = disk
        self._account = account
        self._files = TmpFiles(
            disk,
            account,
            limit_bytes=limit_bytes,
            max_file_bytes=max_file_bytes,
            random_salt=random_salt,
            on_space_freed=on_space_freed,
        )
        self._owners: dict[int, TmpOwner] = {}
        self._messages = 0
        self._paid_buffer_bytes = paid_buffer_bytes
        self._is_closed = False

    @property
    def limit_bytes(self) -> int:
        """Bytes that the files may take on the disk. Messages beyond a lowered limit stay until they are consumed."""
        return self._files.limit_bytes

    @limit_bytes.setter
    def limit_bytes(self, limit_bytes: int) -> None:
        self._files.limit_bytes = limit_bytes

    @property
    def statistics(self) -> TmpStorageStatistics:
        return TmpStorageStatistics(self._files.bytes, self._files.bytes_max, self._messages)

    # ----------------------------------------------------------------- spilling

    def spill(
        self, owners: Sequence[int], messages: Sequence[SpilledMessage], held: Sequence[int] | None = None
    ) -> None:
        """Store messages once for several owners. Requires: ascending sequences, none of which an owner holds yet.

        held: for each owner, a mask of the messages that it will hold. Each owner holds a message, and each message has
            an owner. None: all owners hold all messages.

        It makes one write for up to 512 messages or 512 KiB. On an error nothing is stored and nothing has changed:
        StoreFull if tmp-storage, the memory for places or the disk is full, SpillFailed if the disk fails.
        """
        if self._is_closed:
            raise Closed(TMP_STORAGE)
        if not messages:
            return
        assert len(owners) == len(set(owners)) > 0
        batches = _batches(messages)
        needed_bytes = sum([batch.size for batch in batches])
        available_bytes = self.limit_bytes - self._headroom_bytes - self._files.bytes
        if needed_bytes > available_bytes:
            raise StoreFull(needed_bytes, max(available_bytes, 0), "temp_limit")
        parts = _parts(held or [(1 << len(messages)) - 1] * len(owners), batches)
        grown = self._growable(owners, batches[0])
        fittings, new_shares = self._fittings(owners, batches, parts, grown)
        charge_bytes = self._charge_of(owners, batches, grown, new_shares)
        buffer_bytes = max(max([batch.buffer_bytes for batch in batches]) - self._paid_buffer_bytes, 0)
        if not self._account.reserve(charge_bytes + buffer_bytes):
            raise StoreFull(charge_bytes + buffer_bytes, 0, "memory_limit")
        try:
            places = self._files.write(batches)
        except BaseException as error:
            self._account.release(charge_bytes + buffer_bytes)
            if isinstance(error, OSError):
                raise self._write_error(error, needed_bytes) from error
            raise
        self._account.release(buffer_bytes)
        for owner in owners:
            if owner not in self._owners:
                self._owners[owner] = TmpOwner()
        unused_shares = new_shares + self._shares(owners)
        for batch, part, place, fitting in zip(batches, parts, places, fittings, strict=True):
            self._install(owners, batch, part, place, fitting, grown)
            grown = None
        unused_shares -= self._shares(owners)
        if unused_shares:
            self._account.release(SHARE_CHARGE_BYTES * unused_shares)
        self._messages += len(messages)

    def _charge_of(self, owners: Sequence[int], batches: list[SpillBatch], grown: Chunk | None, new_shares: int) -> int:
        """Return the charge for the places of batches. grown: the chunk for the first batch; None: a new one."""
        return (
            OWNER_CHARGE_BYTES * sum([owner not in self._owners for owner in owners])
            + SHARE_CHARGE_BYTES * new_shares
            + CHUNK_CHARGE_BYTES * (len(batches) - (grown is not None))
            + PLACE_CHARGE_BYTES * sum([len(batch.sequences) for batch in batches])
            + (_offsets_charge(grown, batches[0]) if grown is not None else 0)
        )

    def _growable(self, owners: Sequence[int], batch: SpillBatch) -> Chunk | None:
        """Return the chunk that the first owner filled last, if the batch may follow its messages; else None."""
        newest = self._files.newest
        first = next((self._owners[owner] for owner in owners if owner in self._owners), None)
        if newest is None or first is None or newest.size + batch.size > self._files.file_bytes:
            return None
        chunk = first.last.chunk
        if (
            chunk.file is not newest
            or len(chunk) + len(batch.lengths) > CHUNK_MESSAGES_MAX
            or chunk.live_bytes + batch.size > CHUNK_BYTES_MAX
            or batch.sequences[0] <= chunk.base + chunk.sequences[-1]
            or batch.sequences[-1] - chunk.base > SEQUENCE_SPREAD_MAX
        ):
            return None
        return chunk

    def _fittings(
        self, owners: Sequence[int], batches: list[SpillBatch], parts: list[list[int]], grown: Chunk | None
    ) -> tuple[list[_Fitting], int]:
        """Return where each batch fits between the shares of each owner, and how many shares that adds.

        If two batches split one share, the number may be too large by one.
        """
        fittings: list[_Fitting] = []
        new_shares = 0
        for batch, part in zip(batches, parts, strict=True):
            fitting: _Fitting = []
            fittings.append(fitting)
            for owner, bits in zip(owners, part, strict=True):
                held = self._owners.get(owner, _NOBODY)
                if batch is batches[0] and held.grows(grown):
                    fitting.append([])
                    continue
                pieces, splits = _pieces(held, batch.sequences, bits)
                fitting.append(pieces)
                new_shares += len(pieces) + splits
        return fittings, new_shares

    def _install(
        self,
        owners: Sequence[int],
        batch: SpillBatch,
        part: list[int],
        place: tuple[TmpFile, int],
        fitting: _Fitting,
        grown: Chunk | None,
    ) -> None:
        """Note the places and owners of a batch that was written. From here on its messages are stored."""
        file, offset = place
        chunk = Chunk(file, batch.sequences[0]) if grown is None else grown
        at = chunk.add(batch.sequences, offset, batch.lengths, part)
        file.chunks[chunk] = None
        for owner, bits, pieces in zip(owners, part, fitting, strict=True):
            held = self._owners[owner]
            if held.grows(grown):
                held.last.held |= bits << at
            for piece in pieces:
                share = ChunkShare(chunk, piece << at)
                chunk.shares.append(share)
                held.insert(share)

    def _shares(self, owners: Iterable[int]) -> int:
        return sum([len(self._owners[owner]) for owner in owners])

    def give_up_readers(self) -> int:
        """Close the files that are open only for reading; return how many. Any thread may call it."""
        return self._files.give_up_readers()

    def _write_error(self, error: OSError, needed_bytes: int) -> ForebayError:
        if error.errno not in NO_SPACE:
            return SpillFailed(needed_bytes, error.strerror or str(error))
        return StoreFull(needed_bytes, known_free_bytes(self._disk), "the disk's free space")

    # ------------------------------------------------------------------ reading

    def plan(
        self,
        owner: int,
        runs: Iterable[tuple[int, int]],
        *,
        most_messages: int = CHUNK_MESSAGES_MAX,
        most_bytes: int = REGION_BYTES_MAX,
    ) -> TmpPlan:
        """Plan to read the messages of runs (first, last) that an owner holds, in the order of the runs.

        The plan has up to most_messages with up to most_bytes of content, but at least one message. Neighbours are read
        together, up to 256 KiB.
        """
        planning = TmpPlanBuilder(self._files)
        for first, last in runs:
            for share, held in self._owners.get(owner, _NOBODY).within(first, last):
                for run_first, run_last in runs_of_ones(held):
                    end = planning.fitting_end(share.chunk, run_first, run_last + 1, most_messages, most_bytes)
                    planning.gather(share.chunk, run_first, end)
                    if end <= run_last:
                        return planning.result()
        return planning.result()

    # ----------------------------------------------------------------- removing

    def remove(self, owner: int, first: int, last: int) -> int:
        """Remove an owner's messages from first to last. Return how many it held; it need not hold all."""
        held_by = self._owners.get(owner)
        if held_by is None:
            return 0
        removed = 0
        is_any_emptied = False
        for share, held in held_by.within(first, last):
            share.held ^= held
            is_any_emptied |= not share.held
            removed += held.bit_count()
            self._release(share, held)
        if is_any_emptied:
            self._account.release(SHARE_CHARGE_BYTES * held_by.forget_emptied(first, last))
            if not held_by:
                del self._owners[owner]
                self._account.release(OWNER_CHARGE_BYTES)
        return removed

    def remove_owner(self, owner: int) -> int:
        """Remove an owner with all its messages; return how many it held. O(chunks), plus files to delete."""
        held_by = self._owners.pop(owner, None)
        if held_by is None:
            return 0
        dropped = 0
        for share in held_by:
            held, share.held = share.held, 0
            dropped += held.bit_count()
            self._release(share, held)
        self._account.release(SHARE_CHARGE_BYTES * len(held_by) + OWNER_CHARGE_BYTES)
        return dropped

    def _release(self, share: ChunkShare, messages: int) -> None:
        """Note that one owner less holds the messages in a mask. A chunk or file without held messages is deleted."""
        chunk = share.chunk
        if not share.held:
            chunk.shares.remove(share)
        self._messages -= chunk.drop_owner(messages)
        if not chunk.live_bytes:
            del chunk.file.chunks[chunk]
            self._account.release(_charge(chunk))
            if not chunk.file.live_bytes:
                self._files.delete(chunk.file)

    # ---------------------------------------------------------------- rewriting

    def compact(self) -> Compaction | None:
        """Move up to 256 KiB (or one chunk) out of the file with the lowest share of live bytes. None: no file is worth
        it.

        A file is worth it below 25 % live bytes, and below 50 % if three quarters of the limit are used, but never the
        file that is written to. Disk and memory that the move needs for a moment stay within their limits.
        """
        self._files.delete_undeleted()
        file = self._files.sparsest()
        if file is None:
            return None
        messages = moved_bytes = 0
        while file.live_bytes and moved_bytes < REWRITE_STEP_BYTES:
            chunk = next(iter(file.chunks))
            if not self._rewrite(chunk):
                break
            messages += len(chunk)
            moved_bytes += chunk.live_bytes
        if not messages:
            return None
        freed_bytes = 0
        if not file.live_bytes:
            freed_bytes = file.size
            self._files.delete(file)
        report = Compaction(file.number, messages, moved_bytes, freed_bytes)
        logger.debug(
            "rewritten: tmp-%d.dat, %d messages of %d bytes moved, %d bytes freed", *report, event="tmp_rewritten"
        )
        return report

    def _rewrite(self, chunk: Chunk) -> bool:
        """Copy the live messages of a chunk to the newest file; return False if that is not possible now.

        Nothing has changed then.
        """
        buffer_bytes = 2 * chunk.live_bytes + REGION_BYTES_MAX
        if not self._account.reserve(buffer_bytes):
            return False
        try:
            planning = TmpPlanBuilder(self._files)
            for low, last in runs_of_ones(chunk.live):
                planning.gather(chunk, low, last + 1)
            found, unreadable = read_regions(planning.regions)
            if unreadable:
                chunk.file.is_damaged = True
                logger.warning(
                    "tmp-%d.dat is not rewritten: %s", chunk.file.number, unreadable[0][1], event="tmp_not_rewritten"
                )
                return False
            messages = [
                (sequence, properties, body or b"", timestamp) for sequence, properties, body, timestamp in found
            ]
            [(file, offset)] = self._files.write([_batch(messages)])
        except (OSError, StoreFull) as error:
            logger.debug("not rewritten: %s", error, event="tmp_not_rewritten")
            return False
        finally:
            self._account.release(buffer_bytes)
        before = _charge(chunk)
        chunk.move(file, offset)
        self._account.release(before - _charge(chunk))
        return True

    @property
    def _headroom_bytes(self) -> int:
        """Space that spilling leaves free, so that sparse files can be rewritten when tmp-storage is full."""
        return self._files.file_bytes // 2

    # ------------------------------------------------------------------ closing

    def close(self) -> None:
        """Delete everything. The next open deletes what the disk refuses to delete now."""
        self._is_closed = True
        for owner in list(self._owners):
            self.remove_owner(owner)

    @property
    def charge_bytes(self) -> int:
        """The charge of everything here, computed anew."""
        chunks = [chunk for file in self._files.files.values() for chunk in file.chunks]
        return (
            self._files.charge_bytes
            + OWNER_CHARGE_BYTES * len(self._owners)
            + SHARE_CHARGE_BYTES * self._shares(self._owners)
            + sum([_charge(chunk) for chunk in chunks])
        )

    def _check(self) -> None:
        self._files._check()
        chunks = [chunk for file in self._files.files.values() for chunk in file.chunks]
        for chunk in chunks:
            chunk._check()
        assert self._messages == sum(chunk.live.bit_count() for chunk in chunks)
        for owner in self._owners.values():
            owner._check()
        assert self._shares(self._owners) == sum(len(chunk.shares) for chunk in chunks)


_NOBODY: Final = TmpOwner()
"""An owner without messages. It always stays empty."""


def _charge(chunk: Chunk) -> int:
    return CHUNK_CHARGE_BYTES + (PLACE_CHARGE_BYTES + OFFSET_CHARGE_BYTES * chunk.is_scattered) * len(chunk)


def _offsets_charge(grown: Chunk, batch: SpillBatch) -> int:
    """Return what the column of offsets costs in addition if a batch at the end of the file is added to its chunk."""
    if grown.is_scattered:
        return OFFSET_CHARGE_BYTES * len(batch.lengths)
    return OFFSET_CHARGE_BYTES * (len(grown) + len(batch.lengths)) if grown.ends_at != grown.file.size else 0


def _parts(held: Sequence[int], batches: list[SpillBatch]) -> list[list[int]]:
    """Return, for each batch, a mask for each owner of the messages that it holds."""
    parts: list[list[int]] = []
    begin = 0
    for batch in batches:
        every = (1 << len(batch.sequences)) - 1
        parts.append([bits >> begin & every for bits in held])
        begin += len(batch.sequences)
    return parts


def _pieces(held: TmpOwner, sequences: list[int], bits: int) -> tuple[list[int], int]:
    """Return how the messages of a mask fit between the shares of an owner, as masks; see TmpOwner.pieces."""
    if bits.bit_count() == len(sequences):
        pieces, splits = held.pieces(sequences)
        return [(1 << end) - (1 << begin) for begin, end in pieces], splits
    places = [at for low, last in runs_of_ones(bits) for at in range(low, last + 1)]
    pieces, splits = held.pieces([sequences[at] for at in places])
    return [bits & (2 << places[end - 1]) - (1 << places[begin]) for begin, end in pieces], splits


def _batches(messages: Sequence[SpilledMessage]) -> list[SpillBatch]:
    """Split messages, at least one, into batches that fit one write and one chunk each."""
    whole = _batch(messages)
    sequences = whole.sequences
    if (
        len(messages) <= CHUNK_MESSAGES_MAX
        and whole.size <= BATCH_BYTES_MAX
        and sequences[-1] - sequences[0] <= SEQUENCE_SPREAD_MAX
    ):
        return [whole]
    batches: list[SpillBatch] = []
    begin = size = 0
    for at, length in enumerate(whole.lengths):
        if at > begin and (
            at - begin >= CHUNK_MESSAGES_MAX
            or size + length > BATCH_BYTES_MAX
            or sequences[at] - sequences[begin] > SEQUENCE_SPREAD_MAX
        ):
            batches.append(_batch(messages[begin:at]))
            begin, size = at, 0
        size += length
    batches.append(_batch(messages[begin:]))
    return batches


def _batch(messages: Sequence[SpilledMessage]) -> SpillBatch:
    sequences = [message[0] for message in messages]
    assert sequences == sorted(sequences)
    lengths = [message_bytes(message) for message in messages]
    return SpillBatch(messages, sequences, lengths, sum(lengths))
