"""StoredMessage: a message in RAM, in the form that journal, caches, lists and deliveries share.

The same tuple is in every cache and list. It is a plain tuple of bytes and ints, so the garbage collector soon stops
tracking it, and unpacking costs one instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Final

StoredMessage = tuple[int, bytes, bytes | None, int]
"""(sequence, properties, body, timestamp in ms since 1970). A body of None is not in RAM and is read on demand."""

sequence_of: Final[Callable[[StoredMessage], int]] = itemgetter(0)
properties_of: Final[Callable[[StoredMessage], bytes]] = itemgetter(1)
"""Return sequence or properties of a message. Machine code that looks at a message copies its tuple; `map` does not."""
