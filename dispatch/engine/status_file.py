"""StatusFile: what a running store says about itself, for other processes.

It is replaced as a whole, so that no reader sees half of one, and never synced, because after a power cut an old one or
none is good enough. No reader trusts it.
"""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from typing import Final

STATUS: Final = "status.json"
_NEW: Final = "status.json.new"
STATUS_BYTES_MAX: Final = 1 << 20
"""A larger file was not written by a store."""

_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class StatusFile:
    """The status file of one store's directory, for its owner."""

    def __init__(self, root: str) -> None:
        self._path = os.path.join(os.path.abspath(root), STATUS)
        self._new = os.path.join(os.path.abspath(root), _NEW)
        # When a store fails, each of its threads writes the last status.
        self._one_writes = threading.Lock()

    def write(self, content: bytes) -> None:
        """Replace the status, without a sync. OSError: the disk refused, and the last one remains."""
        assert len(content) <= STATUS_BYTES_MAX, "who writes it bounds it"
        with self._one_writes:
            self._replace(content)

    def _replace(self, content: bytes) -> None:
        descriptor = os.open(self._new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS, 0o600)
        try:
            if os.write(descriptor, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
        os.rename(self._new, self._path)

    def remove(self) -> None:
        """Remove the status, because this process no longer owns the store."""
        for path in (self._new, self._path):
            with suppress(OSError):
                os.unlink(path)


def read_status(root: str) -> bytes | None:
    """Return the content of a store's status file. None: there is none that a store may have written."""
    try:
        descriptor = os.open(os.path.join(root, STATUS), os.O_RDONLY | _FLAGS)
    except OSError:
        return None
    try:
        content = os.read(descriptor, STATUS_BYTES_MAX + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return content if len(content) <= STATUS_BYTES_MAX else None
