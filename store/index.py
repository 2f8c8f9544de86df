"""The index in RAM (the metadata cache): where each pending message lies, lane by lane.

Messages are added and removed here only; the metadata store hears of it at
checkpoints, so a message that is acknowledged before the next checkpoint
never touches the B-tree. Blocks that are clean may leave RAM and are read
back from the metadata store; dirty ones stay. A crash loses all of it:
recovery replays the journal from the last checkpoint.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from cachetools import LRUCache

from .account import Account
from .block import BLOCK_CHARGE_BYTES, BLOCK_MASK, BLOCK_MESSAGES, BLOCK_SHIFT, Block, BlockDamaged, Extent, Singles
from .runs import Runs
from .state import LaneCounts, UseCounts

PRIORITIES: Final = 10
LANE_SHIFT: Final = 4
LANE_MASK: Final = (1 << LANE_SHIFT) - 1


class DataLogUse:
    """Why a data log is needed, as exact counts."""

    __slots__ = ("pending_messages", "pending_bytes", "acked_data_logs")

    def __init__(self) -> None:
        self.pending_messages = 0
        self.pending_bytes = 0
        self.acked_data_logs: set[int] = set()
        """Other data logs that hold messages acknowledged by records in this one."""


class Lane:
    """The pending messages of one (destination, priority). The state lock guards it."""

    __slots__ = (
        "number",
        "destination",
        "priority",
        "next_sequence",
        "pending_messages",
        "pending_bytes",
        "tail",
        "resident",
        "blocks",
        "stored",
        "dead",
        "index",
    )

    def __init__(self, index: Index, destination: int, priority: int) -> None:
        self.index = index
        self.number = destination << LANE_SHIFT | priority
        self.destination = destination
        self.priority = priority
        self.next_sequence = 0
        self.pending_messages = 0
        self.pending_bytes = 0
        self.tail: Block | None = None
        self.resident: dict[int, Block] = {}
        self.blocks = Runs()
        """Numbers of the blocks that hold a pending message, in RAM or stored."""
        self.stored = Runs()
        """Numbers of the blocks that have a row in the metadata store."""
        self.dead = Runs()
        """Numbers of stored blocks whose rows the next checkpoint deletes."""

    def add_one(self, data_log: int, offset: int, length: int, use: DataLogUse) -> int:
        """The next sequence lies there. Returns it. O(1), no disk."""
        sequence = self.next_sequence
        block = self.tail
        if block is None or not sequence & BLOCK_MASK:
            block = self._begin_block(sequence)
        if block.starts is not None:
            block.starts.append(len(block.lengths))
        if not block.file_ids or block.file_ids[-1] != data_log:
            block.begin_file(data_log)
        block.offsets.append(offset)
        block.lengths.append(length)
        if not block.is_dirty:
            self.index.touch(self, block)
        self.next_sequence = sequence + 1
        self.pending_messages += 1
        self.pending_bytes += length
        use.pending_messages += 1
        use.pending_bytes += length
        return sequence

    def add_slice(self, data_log: int, offset: int, lengths: list[int], use: DataLogUse) -> int:
        """The next len(lengths) sequences lie in one record there; they fit into the block. Returns the first."""
        sequence = self.next_sequence
        block = self.tail
        if block is None or not sequence & BLOCK_MASK:
            block = self._begin_block(sequence)
        block.add_slice(data_log, offset, array("I", lengths))
        if not block.is_dirty:
            self.index.touch(self, block)
        count, total = len(lengths), sum(lengths)
        self.next_sequence = sequence + count
        self.pending_messages += count
        self.pending_bytes += total
        use.pending_messages += count
        use.pending_bytes += total
        return sequence

    def add_singles(self, data_log: int, offsets: array[int], lengths: array[int], use: DataLogUse) -> None:
        """As add_one for each, block by block. REQUIRES: there is room for the blocks (`Index.is_crowded`)."""
        begin = 0
        while begin < len(offsets):
            sequence = self.next_sequence
            block = self.tail
            if block is None or not sequence & BLOCK_MASK:
                block = self._begin_block(sequence)
            behind = min(begin + self.slice_room, len(offsets))
            block.add_singles(data_log, offsets[begin:behind], lengths[begin:behind])
            self._touched(block)
            self.next_sequence = sequence + behind - begin
            begin = behind
        total = sum(lengths)
        self.pending_messages += len(lengths)
        self.pending_bytes += total
        use.pending_messages += len(lengths)
        use.pending_bytes += total

    @property
    def slice_room(self) -> int:
        """How many messages the next slice may have so that it does not cross a block."""
        return BLOCK_MESSAGES - (self.next_sequence & BLOCK_MASK)

    def skip_to(self, sequence: int) -> None:
        """Replay found a gap: whatever lay before sequence went with data logs that are gone."""
        if sequence <= self.next_sequence:
            return
        number = sequence >> BLOCK_SHIFT
        if self.tail is not None and self.tail.number == number:
            self._touched(self.tail).fill(sequence & BLOCK_MASK)
        else:
            self.tail = None
            left = self.block(self.next_sequence >> BLOCK_SHIFT)
            if left is not None and left.number != number:
                self._retire_if_empty(left)
        self.next_sequence = sequence

    def _touched(self, block: Block) -> Block:
        if not block.is_dirty:
            self.index.touch(self, block)
        return block

    def _begin_block(self, sequence: int) -> Block:
        number = sequence >> BLOCK_SHIFT
        block = self.block(number) if number in self.blocks else None
        if block is None:
            block = Block(number)
            self.index.admit(self, block)
            self.blocks.add(number, number)
            self._touched(block)
        block.fill(sequence & BLOCK_MASK)
        self.tail = block
        return block

    def block(self, number: int) -> Block | None:
        """The block, from RAM or read from the metadata store; None when nothing in it is pending."""
        block = self.resident.get(number)
        if block is None and number in self.blocks:
            block = self.index.fetch(self, number)
        return block

    def remove(self, first: int, last: int, ack_data_log: int) -> int:
        """First..last are gone, by a record in ack_data_log (0: by none). Returns how many of them were pending.

        O(blocks): what was removed before, or never seen, is passed over.
        """
        removed = 0
        number, last_number = first >> BLOCK_SHIFT, last >> BLOCK_SHIFT
        while number <= last_number:
            block = self.resident.get(number)
            if block is None:
                run = self.blocks.next_from(number)
                if run is None or run[0] > last_number:
                    break
                number = run[0]
                block = self.block(number)
                assert block is not None
            base = number << BLOCK_SHIFT
            removed += self._remove_in(block, max(first - base, 0), min(last - base, BLOCK_MASK), ack_data_log)
            number += 1
        return removed

    def remove_one(self, sequence: int, ack_data_log: int) -> int:
        """As remove, for one: the path of every single ack."""
        block = self.resident.get(sequence >> BLOCK_SHIFT)
        index = sequence & BLOCK_MASK
        if block is None or len(block.file_ids) != 1 or index >= len(block.lengths):
            return self.remove(sequence, sequence, ack_data_log)
        gone = block.gone
        now_gone = gone | 1 << index
        if now_gone == gone:
            return 0
        length = block.lengths[index]
        data_log = block.file_ids[0]
        block.gone = now_gone
        uses = self.index.uses
        use = uses[data_log]
        use.pending_messages -= 1
        use.pending_bytes -= length
        if data_log != ack_data_log:
            uses[ack_data_log].acked_data_logs.add(data_log)
        self.pending_messages -= 1
        self.pending_bytes -= length
        if not block.is_dirty:
            self.index.touch(self, block)
        if block is not self.tail or not self.next_sequence & BLOCK_MASK:
            self._retire_if_empty(block)
        return 1

    def _remove_in(self, block: Block, low: int, high: int, ack_data_log: int) -> int:
        lengths = block.lengths
        if high >= len(lengths):
            high = len(lengths) - 1
        mask = ((1 << (high - low + 1)) - 1) << low if high >= low else 0
        fresh = mask & ~block.gone
        if not fresh:
            return 0
        uses = self.index.uses
        removed = fresh.bit_count()
        freed_bytes = 0
        for data_log, start, end in block.files(low, high):
            part = (fresh >> start) & ((1 << (end - start + 1)) - 1)
            messages = part.bit_count()
            if not messages:
                continue  # the data log may be deleted since, and its counts with it
            if messages == end - start + 1:
                size = lengths[start] if messages == 1 else sum(lengths[start : end + 1])
            else:
                size = sum(lengths[at] for at in range(start, end + 1) if fresh >> at & 1)
            use = uses[data_log]
            use.pending_messages -= messages
            use.pending_bytes -= size
            freed_bytes += size
            if data_log != ack_data_log and ack_data_log:
                uses[ack_data_log].acked_data_logs.add(data_log)
        block.gone |= mask
        self.pending_messages -= removed
        self.pending_bytes -= freed_bytes
        if not block.is_dirty:
            self.index.touch(self, block)
        self._retire_if_empty(block)
        return removed

    def _retire_if_empty(self, block: Block) -> None:
        """Once nothing in the block is pending and nothing will be added, forget it."""
        size = len(block.lengths)
        if block.gone.bit_count() < size or (block is self.tail and size < BLOCK_MESSAGES):
            return
        self.blocks.remove(block.number, block.number)
        if block.number in self.stored:
            self.dead.add(block.number, block.number)
        if block is self.tail:
            self.tail = None
        self.index.expel(self, block)

    def is_pending(self, sequence: int) -> bool:
        block = self.block(sequence >> BLOCK_SHIFT)
        if block is None:
            return False
        index = sequence & BLOCK_MASK
        return index < len(block.lengths) and not block.gone >> index & 1

    def pending_run(self, sequence: int, most: int) -> tuple[int, int] | None:
        """The first run of pending sequences at or behind sequence, cut to most and to its block; None at the end."""
        number = sequence >> BLOCK_SHIFT
        index = sequence & BLOCK_MASK
        while True:
            block = self.resident.get(number)
            if block is None:
                run = self.blocks.next_from(number)
                if run is None:
                    return None
                if run[0] != number:
                    number, index = run[0], 0
                block = self.block(number)
                assert block is not None
            found = block.pending_run(index, most)
            if found is not None:
                base = number << BLOCK_SHIFT
                return base + found[0], base + found[1]
            number, index = number + 1, 0

    def lengths(self, first: int, last: int) -> array[int]:
        """Content bytes of first..last, which lie in one block and are pending."""
        block = self.block(first >> BLOCK_SHIFT)
        assert block is not None
        return block.lengths[first & BLOCK_MASK : (last & BLOCK_MASK) + 1]

    def extents(self, first: int, last: int) -> Iterator[Extent | Singles]:
        """Where first..last lie; they lie in one block and are pending."""
        block = self.block(first >> BLOCK_SHIFT)
        assert block is not None
        return block.extents(first & BLOCK_MASK, last & BLOCK_MASK)

    def _check(self) -> None:
        pending = size = 0
        for low, high in self.blocks:
            for number in range(low, high + 1):
                block = self.block(number)
                assert block is not None and block.number == number
                assert block.pending or number == self.next_sequence >> BLOCK_SHIFT
                block._check()
                pending += block.pending
                size += sum(length for at, length in enumerate(block.lengths) if not block.gone >> at & 1)
        assert pending == self.pending_messages
        assert size == self.pending_bytes
        for runs in (self.blocks, self.stored, self.dead):
            runs._check()
        assert all(number in self.blocks for number in self.resident)


class Index:
    """All lanes, which data logs they need, and the bounded set of blocks in RAM. The state lock guards it."""

    def __init__(self, account: Account, cache_bytes: int, read_block: Callable[[int, int], bytes]) -> None:
        self.lanes: dict[int, Lane] = {}
        self.uses: dict[int, DataLogUse] = {}
        self.dirty: dict[tuple[int, int], Block] = {}
        self.lane_makers: dict[int, Callable[[Index, int, int], Lane]] = {}
        """What makes the lanes of a destination, where it is not Lane."""
        self.is_filling = False
        """A checkpoint soon would keep the index from being crowded."""
        self._account = account
        self._capacity_blocks = max(cache_bytes // BLOCK_CHARGE_BYTES, 16)
        self._resident_blocks = 0
        self._packed_bytes = 0
        self._read_block = read_block
        self._clean: LRUCache[tuple[int, int], Block] = LRUCache(maxsize=1 << 60)

    def lane(self, destination: int, priority: int) -> Lane:
        number = destination << LANE_SHIFT | priority
        lane = self.lanes.get(number)
        if lane is None:
            lane = self.lanes[number] = self.lane_makers.get(destination, Lane)(self, destination, priority)
        return lane

    def lane_numbered(self, number: int) -> Lane:
        return self.lane(number >> LANE_SHIFT, number & LANE_MASK)

    def restore(
        self, lanes: Iterable[LaneCounts], uses: Iterable[UseCounts], blocks: Mapping[int, list[tuple[int, int]]]
    ) -> None:
        """Take over the counters of a checkpoint and which blocks it stored; reads no block."""
        for counts in lanes:
            lane = self.lane_numbered(counts.lane)
            lane.next_sequence = counts.next_sequence
            lane.pending_messages = counts.pending_messages
            lane.pending_bytes = counts.pending_bytes
        for number, runs in blocks.items():
            lane = self.lane_numbered(number)
            for first, last in runs:
                lane.blocks.add(first, last)
                lane.stored.add(first, last)
        for counted in uses:
            use = self.use(counted.data_log)
            use.pending_messages = counted.pending_messages
            use.pending_bytes = counted.pending_bytes
            use.acked_data_logs.update(counted.acked_data_logs)

    def reset(self) -> None:
        """Forget everything, as before a full replay."""
        for lane in self.lanes.values():
            for block in list(lane.resident.values()):
                self.expel(lane, block)
        self.lanes.clear()
        self.uses.clear()

    def use(self, data_log: int) -> DataLogUse:
        use = self.uses.get(data_log)
        if use is None:
            use = self.uses[data_log] = DataLogUse()
        return use

    @property
    def is_crowded(self) -> bool:
        """So many blocks are dirty that a checkpoint must come before more work."""
        return 2 * len(self.dirty) >= self._capacity_blocks

    @property
    def is_nearly_full(self) -> bool:
        """Not even work that a checkpoint does before it writes may make more blocks dirty."""
        return 4 * len(self.dirty) >= 3 * self._capacity_blocks

    @property
    def held_bytes(self) -> int:
        return self._resident_blocks * BLOCK_CHARGE_BYTES + self._packed_bytes

    def admit(self, lane: Lane, block: Block) -> None:
        """Take the block into RAM, sending clean ones away where the cache is full."""
        while self._resident_blocks >= self._capacity_blocks and self._clean:
            (number, _), old = self._clean.popitem()
            self._drop(self.lanes[number], old)
        admitted = self._account.reserve(BLOCK_CHARGE_BYTES)
        assert admitted, "the index's share of memory is guaranteed"
        self._resident_blocks += 1
        lane.resident[block.number] = block

    def _drop(self, lane: Lane, block: Block) -> None:
        del lane.resident[block.number]
        if lane.tail is block:
            lane.tail = None
        self._resident_blocks -= 1
        self._account.release(BLOCK_CHARGE_BYTES)

    def expel(self, lane: Lane, block: Block) -> None:
        self.dirty.pop((lane.number, block.number), None)
        self._clean.pop((lane.number, block.number), None)
        self._drop(lane, block)

    def touch(self, lane: Lane, block: Block) -> None:
        """The block differs from its row from now on."""
        block.is_dirty = True
        self._clean.pop((lane.number, block.number), None)
        self.dirty[lane.number, block.number] = block
        if 4 * len(self.dirty) >= self._capacity_blocks:
            self.is_filling = True

    def fetch(self, lane: Lane, number: int) -> Block:
        block = self._read(lane, number)
        self.admit(lane, block)
        self._clean[lane.number, number] = block
        return block

    def peek(self, lane: Lane, number: int) -> Block:
        """A block that has something pending, for one look: if it is not in RAM, it is read and not kept."""
        return lane.resident.get(number) or self._read(lane, number)

    def _read(self, lane: Lane, number: int) -> Block:
        packed = self._read_block(lane.number, number)
        try:
            return Block.unpack(number, packed)
        except BlockDamaged as damage:
            # Its checksum was right, so whoever wrote it was wrong: no disk is to blame, and nothing can be trusted.
            raise AssertionError(f"block {number} of lane {lane.number} is stored wrong: {damage}") from damage

    def take_dirty(self) -> list[tuple[Lane, Block, bytes]]:
        """Pack what a checkpoint must write. The blocks stay in RAM until settle says how it went."""
        taken: list[tuple[Lane, Block, bytes]] = []
        for (number, _), block in self.dirty.items():
            block.is_dirty = False
            taken.append((self.lanes[number], block, block.pack()))
        self.dirty.clear()
        self.is_filling = False
        self._packed_bytes = sum(len(packed) for _, _, packed in taken)
        admitted = self._account.reserve(self._packed_bytes)
        assert admitted, "the index's share of memory is guaranteed"
        return taken

    def take_dead(self) -> list[tuple[int, int]]:
        """(lane, block) of the rows that a checkpoint must delete. Settle says how it went."""
        dead: list[tuple[int, int]] = []
        for lane in self.lanes.values():
            for first, last in lane.dead:
                dead += [(lane.number, number) for number in range(first, last + 1)]
            lane.dead.clear()
        return dead

    def settle(self, taken: list[tuple[Lane, Block, bytes]], deleted: list[tuple[int, int]], is_stored: bool) -> None:
        """The rows of take_dirty are stored and those of take_dead gone, or neither, and all is due again."""
        self._account.release(self._packed_bytes)
        self._packed_bytes = 0
        for number, block_number in deleted:
            lane = self.lanes[number]
            if is_stored:
                lane.stored.remove(block_number, block_number)
            else:
                lane.dead.add(block_number, block_number)
        for lane, block, _ in taken:
            is_here = lane.resident.get(block.number) is block
            if is_stored:
                lane.stored.add(block.number, block.number)
                if not is_here:
                    lane.dead.add(block.number, block.number)
            if is_here and not block.is_dirty:
                if is_stored:
                    self._clean[lane.number, block.number] = block
                else:
                    self.touch(lane, block)

    def _check(self) -> None:
        assert self._resident_blocks == sum(len(lane.resident) for lane in self.lanes.values())
        for (number, block_number), block in self.dirty.items():
            assert block.is_dirty and self.lanes[number].resident[block_number] is block
        for lane in self.lanes.values():
            lane._check()
