"""A plain deque with a memory limit: what most programs have in place of a queue that spills to disk.

This program runs in a process of its own and imports nothing of forebay. It reads a number of pending messages from
each line, holds that many bodies of 1 KiB, and prints by how much its memory has grown. If the limit of the process has
no room, it says so and ends.
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
    """Run until standard input ends. argv: bytes that the process may grow by, bytes of a body."""
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
