"""Lifetimes: when a message that is sent now expires or is due, and the field of its properties that says it.

The last answers are kept. Messages that are sent in the same millisecond with the same times have the same field.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from ...store.errors import SettingsError
from ...store.format.times import encode_times
from ..config.checks import SECONDS_MAX, check_seconds

Begun = tuple[int, Any, int, bytes]
"""Begin of a lifetime, in the store's time; the lifetime as the caller gave it; its end; the encoded field."""


class Lifetimes:
    """Computes lifetimes. It needs no lock: the answer that it keeps is one object, which is replaced whole."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """now_ms: the time of the store's SteadyClock."""
        self._now_ms = now_ms
        self._last: Begun = (0, None, 0, b"")
        # The times of the last message with a delay, and their encoded field.
        self._last_times: tuple[tuple[object, ...], bytes] = ((), b"")

    def from_now(self, expires_in: Any) -> Begun:
        """Return the lifetime of so many seconds that begins now. SettingsError if it is not valid."""
        now_ms = self._now_ms()
        last = self._last
        if last[0] == now_ms and type(last[1]) is type(expires_in) and last[1] == expires_in:
            return last
        expires_at = ends_at(expires_in, now_ms)
        self._last = begun = (now_ms, expires_in, expires_at, encode_times(expires_at, 0))
        return begun

    def field(self, expires_in: Any) -> bytes:
        """Return the encoded field for a lifetime of so many seconds that begins now. SettingsError as from_now."""
        _, _, _, field = self.from_now(expires_in)
        return field

    def times(self, expires_in: Any, delay: Any, *, is_relative: bool) -> bytes:
        """Return the field for times that begin now. SettingsError if they are not valid.

        expires_in: None: the message does not expire. is_relative: the delay begins with the commit of the transaction.
        """
        if type(delay) is float and delay == 0.0 and expires_in is not None:
            return self.field(expires_in)
        now_ms = self._now_ms()
        made_of = (now_ms, is_relative, type(expires_in), expires_in, type(delay), delay)
        before, field = self._last_times
        if made_of == before:
            return field
        check_seconds("delay", delay)
        expires_at = 0 if expires_in is None else ends_at(expires_in, now_ms)
        delay_ms = ceil(delay * 1000)
        field = encode_times(expires_at, -delay_ms if is_relative or not delay_ms else now_ms + delay_ms)
        self._last_times = made_of, field
        return field


def ends_at(expires_in: Any, now_ms: int) -> int:
    """Return when a lifetime of so many seconds ends, in ms. SettingsError if it is not valid."""
    if type(expires_in) is not float or not 0.0 < expires_in <= SECONDS_MAX:
        check_seconds("expires_in", expires_in)
        if not expires_in:
            raise SettingsError("expires_in must be above 0 seconds: leave it out, and the message never expires")
    return now_ms + max(int(expires_in * 1000), 1)
