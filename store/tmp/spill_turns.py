"""SpillTurns: how the non-persistent messages of a lane are ordered among the persistent ones of the same priority.

A *turn* is a place where one kind of messages follows the other. It has two numbers: the sequence of a non-persistent
message, and the persistent sequence before which that message comes.

Turns are in groups of up to 64. A group has both numbers of its first turn. Each further turn has its two differences
from the previous turn, in two bytes. If the kinds alternate message by message, that is 3 bytes per turn. A turn whose
differences do not fit into two bytes begins a new group. That costs 24 bytes, for 256 messages or more.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate
from typing import Final

from ..numbering import BEHIND_ALL

TURNS_CHARGE_BYTES: Final = 1024
"""Charge of an object without a turn: five arrays, each with its first growth reserve of eight numbers."""
GROUP_TURNS: Final = 64
_GROUP_CHARGE_BYTES: Final = 26
"""Charge of three numbers of 8 bytes, with the growth reserve of array."""
_STEP_CHARGE_EIGHTHS: Final = 17
"""Charge of two bytes, with the growth reserve of array, in eighths of a byte."""
_STEP_MAX: Final = 255
_GROUPS_FORGOTTEN: Final = 16
"""An array gives memory back only if at least this many numbers are removed at once."""


class SpillTurns:
    """The turns of one lane, in order. The state lock guards it."""

    __slots__ = ("_firsts", "_first_sequences", "_begins", "_steps", "_sequence_steps", "_forgotten", "_last")

    def __init__(self) -> None:
        # Persistent sequence of the first turn of each group.
        self._firsts = array("q")
        # Non-persistent sequence of the first turn of each group.
        self._first_sequences = array("q")
        # Index of the first step of each group, counted from the first step that ever was.
        self._begins = array("q")
        # For each further turn of a group: its persistent sequence minus that of the previous turn.
        self._steps = array("B")
        # For each further turn of a group: its non-persistent sequence minus that of the previous turn.
        self._sequence_steps = array("B")
        # Number of steps that were forgotten.
        self._forgotten = 0
        # The newest turn.
        self._last = (0, 0)

    def __len__(self) -> int:
        return len(self._firsts) + len(self._steps)

    def cost(self, turn: int, sequence: int) -> int:
        """Return by how many bytes the charge grows if this turn is added."""
        is_step = self._is_step(turn, sequence)
        return _charge(len(self._firsts) + (not is_step), len(self._steps) + is_step) - self.charge_bytes

    def add(self, turn: int, sequence: int) -> None:
        """Order messages from this sequence on before the persistent one `turn`, which is above all earlier ones."""
        if self._is_step(turn, sequence):
            self._steps.append(turn - self._last[0])
            self._sequence_steps.append(sequence - self._last[1])
        else:
            self._firsts.append(turn)
            self._first_sequences.append(sequence)
            self._begins.append(self._forgotten + len(self._steps))
        self._last = turn, sequence

    def _is_step(self, turn: int, sequence: int) -> bool:
        """Return whether this turn fits into the newest group."""
        if not self._firsts or self._forgotten + len(self._steps) - self._begins[-1] >= GROUP_TURNS - 1:
            return False
        return turn - self._last[0] <= _STEP_MAX and sequence - self._last[1] <= _STEP_MAX

    def next_persistent(self, sequence: int) -> int:
        """Return the persistent sequence before which this message comes. 0 before the first turn. O(log turns)."""
        group = bisect_right(self._first_sequences, sequence) - 1
        if group < 0:
            return 0
        turn, at = self._firsts[group], self._first_sequences[group]
        begin, end = self._range(group)
        steps = bisect_right(list(accumulate(self._sequence_steps[begin:end], initial=at)), sequence) - 1
        return turn + sum(self._steps[begin : begin + steps])

    def next_non_persistent(self, persistent_sequence: int) -> int:
        """Return the first sequence of a message that comes behind this persistent one. O(log turns)."""
        group = bisect_right(self._firsts, persistent_sequence)
        if group:
            turn, at = self._firsts[group - 1], self._first_sequences[group - 1]
            begin, end = self._range(group - 1)
            steps = bisect_right(list(accumulate(self._steps[begin:end], initial=turn)), persistent_sequence)
            if begin + steps <= end:
                return at + sum(self._sequence_steps[begin : begin + steps])
        return self._first_sequences[group] if group < len(self._firsts) else BEHIND_ALL

    def forget(self, sequence: int) -> int:
        """Forget what only messages before this one need; return by how many bytes the charge shrinks."""
        groups = bisect_right(self._first_sequences, sequence) - 1
        if groups < _GROUPS_FORGOTTEN:
            return 0
        before = self.charge_bytes
        steps = self._begins[groups] - self._forgotten
        del self._firsts[:groups], self._first_sequences[:groups], self._begins[:groups]
        del self._steps[:steps], self._sequence_steps[:steps]
        self._forgotten += steps
        return before - self.charge_bytes

    def _range(self, group: int) -> tuple[int, int]:
        """Return where the steps of a group begin and end."""
        begins = self._begins
        end = begins[group + 1] - self._forgotten if group + 1 < len(begins) else len(self._steps)
        return begins[group] - self._forgotten, end

    @property
    def charge_bytes(self) -> int:
        """The charge of everything here."""
        return _charge(len(self._firsts), len(self._steps))

    def _check(self) -> None:
        assert len(self._firsts) == len(self._first_sequences) == len(self._begins)
        assert len(self._steps) == len(self._sequence_steps)
        turns: list[tuple[int, int]] = []
        for group, first in enumerate(zip(self._firsts, self._first_sequences, strict=True)):
            begin, end = self._range(group)
            assert 0 <= begin <= end <= len(self._steps) and end - begin < GROUP_TURNS
            turn, sequence = first
            turns.append(first)
            for step in range(begin, end):
                turn, sequence = turn + self._steps[step], sequence + self._sequence_steps[step]
                turns.append((turn, sequence))
        assert len(turns) == len(self)
        assert not turns or turns[-1] == self._last
        assert [turn for turn, _ in turns] == sorted({turn for turn, _ in turns})
        assert [sequence for _, sequence in turns] == sorted(sequence for _, sequence in turns)


def _charge(groups: int, steps: int) -> int:
    return TURNS_CHARGE_BYTES + _GROUP_CHARGE_BYTES * groups + (_STEP_CHARGE_EIGHTHS * steps + 7) // 8
