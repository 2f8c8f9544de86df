"""SequenceBitmap: a set of sequences of one lane, block by block, such as those a subscription has not acknowledged.

A block that is completely in the set costs a part of a run; any other block costs a mask, whatever its pattern. Ten
million consecutive sequences cost as much as one run, and ten million in any pattern less than 0.5 bytes each. Masks
are charged in steps, when the first mask of a step is made.
"""

from __future__ import annotations

from typing import Final

from ..environment.account import OverdraftAccount, Uncounted
from ..format.state_record import SubscriptionBacklog
from ..numbering import BLOCK_MASK, BLOCK_MESSAGES, BLOCK_SHIFT
from ..structures.bits import ones
from ..structures.sequence_set import SequenceSet

FULL_BLOCK: Final = (1 << BLOCK_MESSAGES) - 1
STEP_MASKS: Final = 4
MASKS_STEP_BYTES: Final = 768
"""Charge of one step of masks, with everything else that their blocks cost; and the charge of the set itself.

Measured with tracemalloc for up to 5,000 masks.
"""
_UNCOUNTED: Final = Uncounted()
"""The account of sets that are not kept."""


class SequenceBitmap:
    """A set of sequences. Not thread-safe: the state lock guards it."""

    __slots__ = ("blocks", "count", "_masks", "_account", "_paid_masks")

    def __init__(self, account: OverdraftAccount = _UNCOUNTED) -> None:
        """Make an empty set. account: pays for it until `close`."""
        self._account = account
        self._paid_masks = 0
        account.charge(MASKS_STEP_BYTES)
        # Numbers of the blocks that have a sequence in the set. Only the set changes it.
        self.blocks = SequenceSet()
        self.count = 0
        # Block -> mask of its sequences in the set, if those are not all.
        self._masks: dict[int, int] = {}

    @classmethod
    def of_run(cls, first: int, last: int, account: OverdraftAccount = _UNCOUNTED) -> SequenceBitmap:
        """Return the set of first..last. O(1)."""
        made = cls(account)
        low, high = first >> BLOCK_SHIFT, last >> BLOCK_SHIFT
        made.blocks.add(low, high)
        for number in {low, high}:
            base = number << BLOCK_SHIFT
            mask = ones(max(first - base, 0), min(last - base, BLOCK_MASK))
            if mask < FULL_BLOCK:
                made._masks[number] = mask
        made.count = last - first + 1
        made._pay()
        return made

    def copy(self, account: OverdraftAccount = _UNCOUNTED) -> SequenceBitmap:
        """Return a copy. O(runs + masks)."""
        made = SequenceBitmap(account)
        made.blocks = self.blocks.copy()
        made.count, made._masks = self.count, self._masks.copy()
        made._pay()
        return made

    def close(self) -> None:
        """Release the charge of the set, because it is no longer in use."""
        self._account.release(self.charge_bytes)
        self._account, self._paid_masks = _UNCOUNTED, 0

    @property
    def charge_bytes(self) -> int:
        """Bytes that are charged for the set."""
        return MASKS_STEP_BYTES * (1 + self._paid_masks // STEP_MASKS)

    def _pay(self) -> None:
        """Charge for the present number of masks."""
        steps = (len(self._masks) + STEP_MASKS - 1) // STEP_MASKS - self._paid_masks // STEP_MASKS
        self._paid_masks += STEP_MASKS * steps
        if steps > 0:
            self._account.charge(MASKS_STEP_BYTES * steps)
        elif steps < 0:
            self._account.release(-MASKS_STEP_BYTES * steps)

    def mask(self, block_number: int) -> int:
        """Return the sequences of a block in the set, as a bit for each. O(log runs)."""
        mask = self._masks.get(block_number)
        if mask is not None:
            return mask
        return FULL_BLOCK if block_number in self.blocks else 0

    def __contains__(self, sequence: int) -> bool:
        return bool(self.mask(sequence >> BLOCK_SHIFT) >> (sequence & BLOCK_MASK) & 1)

    def add(self, first: int, last: int) -> None:
        """Add first..last; sequences that are in already stay. O(blocks)."""
        for number in range(first >> BLOCK_SHIFT, (last >> BLOCK_SHIFT) + 1):
            base = number << BLOCK_SHIFT
            self._set(number, self.mask(number) | ones(max(first - base, 0), min(last - base, BLOCK_MASK)))

    def unite(self, other: SequenceBitmap, first: int) -> None:
        """Add the sequences of another set from `first` on. O(runs + masks of both), however many blocks those are."""
        start = first >> BLOCK_SHIFT
        known = {number: mask for number, mask in other._masks.items() if number > start}
        known |= {number: FULL_BLOCK for number in self._masks if number > start and other.mask(number) == FULL_BLOCK}
        known[start] = other.mask(start) & ones(first & BLOCK_MASK, BLOCK_MASK)
        for number, mask in known.items():
            if mask:
                self._set(number, self.mask(number) | mask)
        for low, high in other.blocks:
            if high > start:
                self.blocks.add(max(low, start + 1), high)
        self.count = self._counted()

    def remove(self, block_number: int, mask: int) -> None:
        """Remove the sequences in a mask from a block; those that are not in are ignored. O(log runs)."""
        self._set(block_number, self.mask(block_number) & ~mask)

    def _set(self, block_number: int, mask: int) -> None:
        before = self.mask(block_number)
        self.count += mask.bit_count() - before.bit_count()
        if mask and not before:
            self.blocks.add(block_number, block_number)
        elif before and not mask:
            self.blocks.remove(block_number, block_number)
        masks = self._masks
        if 0 < mask < FULL_BLOCK:
            masks[block_number] = mask
            if len(masks) > self._paid_masks:
                self._pay()
        elif masks.pop(block_number, None) is not None and len(masks) + 2 * STEP_MASKS <= self._paid_masks:
            self._pay()

    def next_block(self, block_number: int) -> int | None:
        """Return the first block from `block_number` on with a sequence in the set. None: no block. O(log runs)."""
        run = self.blocks.next_from(block_number)
        return None if run is None else run[0]

    def clear(self) -> None:
        self.blocks.clear()
        self._masks.clear()
        self.count = 0
        self._pay()

    def backlog(self, lane_number: int, pending_bytes: int) -> SubscriptionBacklog:
        """Return the whole set as a checkpoint stores it."""
        return SubscriptionBacklog(lane_number, pending_bytes, tuple(self.blocks), tuple(self._masks.items()))

    def restore(self, backlog: SubscriptionBacklog) -> None:
        """Take over the set that a checkpoint stored. O(runs + masks)."""
        self.clear()
        for first, last in backlog.blocks:
            self.blocks.add(first, last)
        self._masks.update(backlog.masks)
        self.count = self._counted()
        self._pay()

    def _counted(self) -> int:
        return (self.blocks.count - len(self._masks)) * BLOCK_MESSAGES + sum(map(int.bit_count, self._masks.values()))

    def _check(self) -> None:
        self.blocks._check()
        assert all(0 < mask < FULL_BLOCK and number in self.blocks for number, mask in self._masks.items())
        assert self.count == self._counted()
        assert len(self._masks) <= self._paid_masks < len(self._masks) + 3 * STEP_MASKS
