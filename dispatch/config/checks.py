"""Checks of arguments that several calls of the library take. They raise SettingsError or ArgumentError."""

from __future__ import annotations

from typing import Any, Final

from ...store.disk.disk import Disk
from ...store.environment.clock import Clock
from ...store.errors import ArgumentError, SettingsError, argument_error
from ...store.format.state_record import NAME_BYTES_MAX
from .policy import TIMEOUT_SECONDS_MAX, is_pattern, pattern_problem
from .sizes import is_number

SECONDS_MAX: Final = 1_000_000_000
"""Most seconds of a timeout or a delay, about thirty years: threading can wait that long."""
AT_ONCE: Final[Any] = float(0)
"""The timeout of a take that does not wait: 0.0.

Takes compare their timeout with it by identity first, because a value that only equals 0 may be no number of seconds,
such as False. It is declared as Any: compiled code would make a new object of a float at each use.
"""


def check_seconds(name: str, seconds: object) -> None:
    """Raise SettingsError unless the value is a number of seconds from 0 to SECONDS_MAX."""
    if not is_number(seconds, 0, SECONDS_MAX):
        problem = f"{name} must be seconds from 0 to {SECONDS_MAX:,}, not {seconds!r}"
        raise argument_error(problem, seconds, int, float)


_CODEC: Final = ("encode", "decode")
_CLOCK: Final = ("monotonic", "time_ms", "computed_seconds", "random_bytes", "wait")
_DISK: Final = (
    "open",
    "open_for_reading",
    "exists",
    "list",
    "make_directory",
    "rename",
    "remove",
    "sync_directory",
    "open_directory",
    "free_bytes",
)


def check_clock(clock: Clock) -> Clock:
    """Return the clock if it has the methods of a Clock; otherwise raise."""
    _check_methods("clock", clock, _CLOCK)
    return clock


def check_disk(disk: Disk) -> Disk:
    """Return the disk if it has the methods of a Disk; otherwise raise."""
    _check_methods("disk", disk, _DISK)
    return disk


def check_codec(codec: object) -> None:
    """Raise ArgumentError unless the codec is None or has the methods of a Codec."""
    if codec is not None:
        _check_methods("codec", codec, _CODEC)


def _check_methods(name: str, given: object, methods: tuple[str, ...]) -> None:
    missing = [method for method in methods if not callable(getattr(given, method, None))]
    if missing:
        raise ArgumentError(f"{name} must have the methods {', '.join(missing)}: {type(given).__name__} has them not")


def check_bounds(timeout: object, max_bytes: object) -> None:
    """Raise SettingsError unless both are valid bounds for a call that takes messages. None is no bound."""
    if timeout is not None:
        check_seconds("timeout", timeout)
    if max_bytes is not None and (type(max_bytes) is not int or max_bytes < 1):
        raise argument_error(f"max_bytes must be an int from 1 on, or None, not {max_bytes!r}", max_bytes, int)


def check_max_messages(max_messages: object) -> None:
    """Raise SettingsError unless a call may ask for that many messages: an int from 1 on."""
    if type(max_messages) is not int or max_messages < 1:
        raise argument_error(f"max_messages must be an int from 1 on, not {max_messages!r}", max_messages, int)


def check_name(name: object, what: str = "a destination") -> str:
    """Return the name if it is valid: up to 255 bytes of printable UTF-8. A name is data, never a path."""
    if not isinstance(name, str) or not name:
        raise argument_error(f"{what}'s name must be a non-empty str, not {name!r}", name, str)
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise SettingsError(f"{what}'s name holds half a surrogate pair: it is not text") from None
    if size > NAME_BYTES_MAX:
        raise SettingsError(f"{what}'s name of {size} bytes is above {NAME_BYTES_MAX}: shorten it")
    if not name.isprintable():
        raise SettingsError(f"{what}'s name holds a control character: leave it out")
    return name


def check_topic_name(name: object) -> str:
    """Return the name if it is valid for a topic, or is a valid pattern of topic names. SettingsError."""
    checked = check_name(name)
    if is_pattern(checked) and (problem := pattern_problem(checked)) is not None:
        raise SettingsError(problem)
    return checked


def deadline_after(timeout: object, now: float) -> float | None:
    """Return when a waiting call gives up, in monotonic seconds. None: the policy decides. SettingsError."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 <= timeout <= TIMEOUT_SECONDS_MAX:
        problem = f"timeout must be seconds as a number from 0 to {TIMEOUT_SECONDS_MAX:,}, not {timeout!r}"
        raise argument_error(problem, timeout, int, float)
    return now + timeout
