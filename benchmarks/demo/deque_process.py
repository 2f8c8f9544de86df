"""The plain deque beside the demo: start its process, tell it how many messages are pending, and read its answers."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self

_ANSWER_BYTES = 4096


class DequeProcess:
    """The process with the plain deque. A context manager, because the process must end with the demo."""

    def __init__(self, limit_bytes: int, body_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        # Messages that the deque held when the limit ended its process; None: the process has not ended.
        self.ended_with: int | None = None
        program = Path(__file__).with_name("plain_deque.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(program), str(limit_bytes), str(body_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._answers = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self._process.wait()

    def tell(self, pending: int, wait_seconds: float = 0.0) -> None:
        """Tell the process how many messages are pending, and read the answers that it has given so far.

        wait_seconds: for the answer; 0: it comes with a later call.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with suppress(BrokenPipeError):
            os.write(stdin.fileno(), b"%d\n" % pending)
        while self.ended_with is None and select.select([stdout], [], [], wait_seconds)[0]:
            piece = os.read(stdout.fileno(), _ANSWER_BYTES)
            if not piece:
                return
            self._answers += piece
            *lines, rest = bytes(self._answers).split(b"\n")
            self._answers = bytearray(rest)
            for line in lines:
                word, number = line.split()
                if word == b"ended":
                    self.ended_with = int(number)
                else:
                    self.held_bytes = int(number)
            wait_seconds = 0.0
