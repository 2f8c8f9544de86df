"""Make this process run out of file descriptors, like a host with many connections."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def descriptors_left(count: int) -> Iterator[list[int]]:
    """Leave this process `count` descriptors. Yields the descriptors that were taken; close one to free it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1 + count, hard))
    try:
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError as error:
                if error.errno != errno.EMFILE:
                    raise
                break
        for _ in range(count):
            os.close(taken.pop())
        yield taken
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)
