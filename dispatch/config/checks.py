"""Checks of the arguments that more than one call of the library takes. The only error is SettingsError."""

from __future__ import annotations

from typing import Final

from ...store.errors import SettingsError
from ...store.format.state import NAME_BYTES_MAX
from .policy import TIMEOUT_SECONDS_MAX
from .sizes import is_number

SECONDS_MAX: Final = 1_000_000_000


def check_seconds(name: str, seconds: float) -> None:
    """Raise SettingsError unless these are seconds of a wait, a delay or a lifetime."""
    if not is_number(seconds, 0, SECONDS_MAX):
        raise SettingsError(f"{name} must be seconds from 0 to {SECONDS_MAX:,}, not {seconds!r}")


def check_bounds(timeout: float | None, max_bytes: int | None) -> None:
    """Raise SettingsError unless these bound a call that takes messages; None is no bound."""
    if timeout is not None:
        check_seconds("timeout", timeout)
    if max_bytes is not None and (type(max_bytes) is not int or max_bytes < 1):
        raise SettingsError(f"max_bytes must be an int from 1 on, or None, not {max_bytes!r}")


def check_name(name: str, what: str = "a destination") -> str:
    """Return the name if it can be one. A name is data, never a path: up to 255 bytes of printable UTF-8."""
    if not isinstance(name, str) or not name:
        raise SettingsError(f"{what}'s name must be a non-empty str, not {name!r}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise SettingsError(f"{what}'s name holds half a surrogate pair: it is not text") from None
    if size > NAME_BYTES_MAX:
        raise SettingsError(f"{what}'s name of {size} bytes is above {NAME_BYTES_MAX}: shorten it")
    if not name.isprintable():
        raise SettingsError(f"{what}'s name holds a control character: leave it out")
    return name


def deadline_after(timeout: float | None, now: float) -> float | None:
    """Return when a waiting send gives up; None: the destination's policy says it."""
    if timeout is None:
        return None
    if not is_number(timeout, 0, TIMEOUT_SECONDS_MAX):
        raise SettingsError(f"timeout must be seconds as a number from 0 to {TIMEOUT_SECONDS_MAX:,}, not {timeout!r}")
    return now + timeout
