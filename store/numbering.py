"""How numbers of lanes, blocks, positions and sequences are put together, and the two numbers that end all others."""

from __future__ import annotations

from typing import Final

LANE_SHIFT: Final = 4
"""A lane's number is that of its destination, or subscription, shifted by so many bits, and its priority."""
LANE_MASK: Final = (1 << LANE_SHIFT) - 1
PRIORITIES: Final = 10
"""Priorities are below it, so that they fit those bits."""
NON_PERSISTENT: Final = 1 << 48
"""Set in numbers of lanes of non-persistent messages: no lane of the index, and no subscription's, has this bit."""
PUT_OFF: Final = 1 << 47
"""Set in the numbers under which the index knows when messages of a lane come back; no lane's number has this bit."""

BLOCK_SHIFT: Final = 9
"""A block has the messages of which the sequences, shifted by so many bits, are its number."""
BLOCK_MESSAGES: Final = 1 << BLOCK_SHIFT
BLOCK_MASK: Final = BLOCK_MESSAGES - 1

OFFSET_BITS: Final = 32
"""A position in the journal is the id of a data log, shifted by so many bits, and an offset in that file."""
OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1

NO_DESTINATION: Final = 0
"""Number of no destination: what is deleted has it, and the journal answers it with Closed."""
BEHIND_ALL: Final = (1 << 62) - 1
"""Greater than every sequence: the place behind all messages that a lane may ever have."""
UNLIMITED: Final = (1 << 62) - 1
"""More messages, and more bytes, than there may ever be: a number that bounds nothing."""


def lanes_of(destination: int) -> list[int]:
    """Return the numbers of all lanes that a destination or subscription may have, persistent and not."""
    persistent = persistent_lanes_of(destination)
    return [*persistent, *(NON_PERSISTENT | lane_number for lane_number in persistent)]


def persistent_lanes_of(destination: int) -> list[int]:
    """Return the numbers of the lanes of persistent messages that a destination or subscription may have."""
    return [destination << LANE_SHIFT | priority for priority in range(PRIORITIES)]
