"""How the numbers of lanes, blocks, positions and sequences are composed and printed, and two numbers that are larger
than all others.
"""

from __future__ import annotations

from typing import Final

LANE_SHIFT: Final = 4
"""The number of a lane is that of its destination or subscription, shifted left by so many bits, plus the priority."""
LANE_MASK: Final = (1 << LANE_SHIFT) - 1
PRIORITIES: Final = 10
"""Number of priorities, which fit into those bits."""
NON_PERSISTENT: Final = 1 << 48
"""Set in the numbers of lanes of non-persistent messages. No lane of the index or of a subscription has this bit."""
DELAYED: Final = 1 << 47
"""Set in the numbers under which the index knows when messages of a lane come back.

No number of a lane has this bit.
"""

BLOCK_SHIFT: Final = 9
"""The number of a block is the sequence of each of its messages, shifted right by so many bits."""
BLOCK_MESSAGES: Final = 1 << BLOCK_SHIFT
BLOCK_MASK: Final = BLOCK_MESSAGES - 1

OFFSET_BITS: Final = 32
"""A position in the journal is the id of a data log, shifted left by so many bits, plus an offset in that file."""
OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1
NOTHING_TO_SYNC: Final = 0
"""A position in the journal before all records. The journal is always durable up to it."""

NO_DESTINATION: Final = 0
"""The number of no destination. A deleted object has it, and the journal answers it with Closed."""
BEHIND_ALL: Final = (1 << 62) - 1
"""A sequence greater than any that a lane may ever give."""
UNLIMITED: Final = (1 << 62) - 1
"""More messages, and more bytes, than there may ever be: a number that limits nothing."""


def lanes_of(destination: int) -> list[int]:
    """Return the numbers of all lanes, persistent or not, that a destination or subscription may have."""
    persistent = persistent_lanes_of(destination)
    return [*persistent, *(NON_PERSISTENT | lane_number for lane_number in persistent)]


def persistent_lanes_of(destination: int) -> list[int]:
    """Return the numbers of all persistent lanes that a destination or subscription may have."""
    return [destination << LANE_SHIFT | priority for priority in range(PRIORITIES)]


def location_text(position: int) -> str:
    """Return a position as logs print it: data log id, colon, offset."""
    return f"{position >> OFFSET_BITS}:{position & OFFSET_MASK}"
