"""A host in a control group with a limit of its own: it takes more and more RAM, and its store gives memory back.

Arguments: the file that takes a process into the group, the store's directory, its memory limit, the bytes of the
backlog, the bytes that the host takes. Prints one line: the limit at the end, in bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import forebay
from forebay.testing import ManualClock

PIECE_BYTES = 4 << 20
BODY_BYTES = 8192
BATCH = 128


def play(directory: str, memory_limit: str, backlog_bytes: int, host_bytes: int) -> int:
    clock = ManualClock()
    host: list[bytearray] = []
    with forebay.open(directory, clock=clock, background=False, memory_limit=memory_limit, sync="never") as bay:
        queue = bay.queue("orders")
        with queue.subscribe():
            for _ in range(backlog_bytes // (BODY_BYTES * BATCH)):
                queue.send_many([forebay.Message(bytes(BODY_BYTES)) for _ in range(BATCH)])
            bay.step()
            assert bay.statistics().memory.held_bytes > bay.statistics().memory.limit_bytes * 3 // 4
            for _ in range(host_bytes // PIECE_BYTES):
                host.append(bytearray(b"x") * PIECE_BYTES)
                clock.advance(1.0)
                bay.step()
        return bay.statistics().memory.limit_bytes


if __name__ == "__main__":
    members, directory, memory_limit, backlog, taken = sys.argv[1:]
    Path(members).write_text("0\n", encoding="ascii")
    print(play(directory, memory_limit, int(backlog), int(taken)))
