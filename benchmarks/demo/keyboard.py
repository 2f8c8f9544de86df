"""The keys of the demo, with which a spectator slows consumers, resizes the store, or kills the process."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from forebay.dispatch.config.sizes import MIB

from ..load.orders import Order

KEYS: Final[Mapping[str, str]] = {
    "s": "slow",
    "f": "fast",
    "l": "less memory",
    "m": "more",
    "e": "explain",
    "c": "clean up",
    "k": "kill -9",
    "q": "end",
}
"""By key: what it does."""
KEYS_TEXT: Final = "  ".join(f"{key} {what}" for key, what in KEYS.items())
SLOW_PACE: Final = 500.0
FULL_PACE: Final = 1e9
LESS_BYTES: Final = 16 * MIB
MORE_BYTES: Final = 64 * MIB

_ORDERS: Final = {
    "s": Order("pace", pace=SLOW_PACE),
    "f": Order("pace", pace=FULL_PACE),
    "l": Order("resize", memory=LESS_BYTES),
    "m": Order("resize", memory=MORE_BYTES),
    "e": Order("explain"),
    "c": Order("cleanup"),
    "k": Order("kill"),
}


class Keyboard:
    """Turns pressed keys into orders. `keyboard` makes it, and the supervisor reads it as an Orderer."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def take(self) -> list[Order]:
        """Return the orders of pressed keys. KeyboardInterrupt: the key that ends the demo was pressed."""
        pressed = b""
        while select.select([self._descriptor], [], [], 0)[0] and (piece := os.read(self._descriptor, 64)):
            pressed += piece
        keys = pressed.decode("ascii", "replace").lower()
        if "q" in keys:
            raise KeyboardInterrupt
        return [_ORDERS[key] for key in keys if key in _ORDERS]


@contextmanager
def keyboard() -> Iterator[Keyboard | None]:
    """Read single keys from the terminal, and restore the terminal at the end. None: standard input is no terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield None
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
