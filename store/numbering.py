"""The layout of the numbers of lanes, blocks, positions and sequences, and the greatest numbers."""

from __future__ import annotations

from typing import Final

LANE_SHIFT: Final = 4
"""A lane's number is the number of its destination or subscription, shifted left by these bits, plus its priority."""
LANE_MASK: Final = (1 << LANE_SHIFT) - 1
PRIORITIES: Final = 10
"""Number of priorities. They fit into LANE_SHIFT bits."""
NON_PERSISTENT: Final = 1 << 48
"""The bit that marks a lane of non-persistent messages. No lane of the index or of a subscription has it."""
PUT_OFF: Final = 1 << 47
"""The bit that marks the numbers under which the index keeps the times of delayed messages. No lane has it."""

BLOCK_SHIFT: Final = 9
"""The number of a block is the sequence of any of its messages, shifted right by these bits."""
BLOCK_MESSAGES: Final = 1 << BLOCK_SHIFT
BLOCK_MASK: Final = BLOCK_MESSAGES - 1

OFFSET_BITS: Final = 32
"""A position in the journal is the id of a data log, shifted left by these bits, plus an offset in that file."""
OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1

NO_DESTINATION: Final = 0
"""The number of no destination. A deleted destination gets it, and the journal answers it with Closed."""
BEHIND_ALL: Final = (1 << 62) - 1
"""A sequence greater than any that a lane may ever give."""
UNLIMITED: Final = (1 << 62) - 1
"""A number of messages or bytes that is never reached: no limit."""


def lanes_of(destination: int) -> list[int]:
    """Return the numbers of all lanes that a destination or subscription may have, persistent and not."""
    persistent = persistent_lanes_of(destination)
    return [*persistent, *(NON_PERSISTENT | lane_number for lane_number in persistent)]


def persistent_lanes_of(destination: int) -> list[int]:
    """Return the numbers of the lanes of persistent messages that a destination or subscription may have."""
    return [destination << LANE_SHIFT | priority for priority in range(PRIORITIES)]
