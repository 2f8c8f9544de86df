"""StoredMessage: a message in RAM, in the form that journal, caches, lists and deliveries share.

The same tuple is in every cache and list. It is a plain tuple of bytes and ints, so the garbage collector soon stops
tracking it, and unpacking costs one instruction.
"""

from __future__ import annotations

StoredMessage = tuple[int, bytes, bytes | None, int]
"""(sequence, properties, body, timestamp in ms since 1970). A body of None is not in RAM and is read on demand."""
