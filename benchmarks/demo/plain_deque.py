"""A plain deque with a limit of memory: what most programs have in the place of a queue that spills.

A process of its own, which imports nothing of forebay. It reads how many
messages are pending, a number a line, holds as many bodies of 1 KiB, and tells
how much memory it has grown by. Where the limit of its process has no room, it tells so
and ends.
"""

import os
import resource
import sys
from collections import deque


def resident_bytes() -> int:
    """Return the bytes of this process in RAM."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def mapped_bytes() -> int:
    """Return the bytes of address space that this process has, which is what the system limits."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def main() -> None:
    """argv: the bytes that the process may grow by, and those of a body."""
    body_bytes = int(sys.argv[2])
    pending: deque[bytearray] = deque()
    before = resident_bytes()
    limit = mapped_bytes() + int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for line in sys.stdin:
        wanted = int(line)
        try:
            while len(pending) < wanted:
                pending.append(bytearray(body_bytes))
        except MemoryError:
            messages = len(pending)
            pending.clear()
            os.write(1, b"ended %d\n" % messages)
            sys.exit(1)
        while len(pending) > wanted:
            pending.popleft()
        os.write(1, b"holds %d\n" % (resident_bytes() - before))


if __name__ == "__main__":
    main()
