"""All names in the store's directory are made and parsed here. The directory's lock, which gives it one owner, is here
too.

    <directory>/<broker name>/lock
                              journal/data-<id>.log, journal/reserve-<part>
                              kr-store/data, kr-store/state
                              kr-store/state/destinations.json, which destinations_file.py writes
                              quarantine/
                              tmp-storage/tmp-<number>.dat
                              archive/
                              leases/lease-<name>
                              import/<load id>.load, import/part-<set>-<number>-<nonce>.data
                              status.json, which dispatch/engine/status_file.py writes

kr-store is the name that ActiveMQ gave its store of references to the journal (Kaha reference store), so that its
operators find what they know.

The lock belongs to the kernel (flock), so it is free after any end of the process. The lock file stays, and its content
only serves the error message of a second process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import reprlib
import time
from collections.abc import Callable
from typing import Final

from ..errors import ArgumentError, ForebayError, SettingsError, StoreFailed, StoreLocked, argument_error

JOURNAL: Final = "journal"
INDEX_DIRECTORY: Final = "kr-store/data"
STATE_DIRECTORY: Final = "kr-store/state"
QUARANTINE: Final = "quarantine"
TMP_STORAGE: Final = "tmp-storage"
ARCHIVE: Final = "archive"
IMPORT: Final = "import"
LOCK: Final = "lock"

DATA_LOG_ID_MAX: Final = 2**31 - 1
BROKER_NAME_CHARACTERS_MAX: Final = 64

_DATA_LOG: Final = re.compile(r"data-([1-9][0-9]{0,9})\.log")
_TMP_FILE: Final = re.compile(r"tmp-([1-9][0-9]{0,17})\.dat")
_LOAD_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
_PART: Final = re.compile(r"part-([0-9a-f]{32})-(0|[1-9][0-9]{0,9})-([0-9a-f]{16})\.data")
_BROKER_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
_HOLDER: Final = re.compile(r"pid [0-9]{1,10} on [A-Za-z0-9_.-]{1,64} since [0-9TZ:-]{1,32}")
_RETRY_SECONDS: Final = 0.02


def data_log_name(data_log: int) -> str:
    """Return the name of the data log with this id."""
    assert 1 <= data_log <= DATA_LOG_ID_MAX, f"no data log has id {data_log}"
    return f"{JOURNAL}/data-{data_log}.log"


def reserve_name(part: int) -> str:
    """Return the name of a part of the reserve, 1 or 2."""
    return f"{JOURNAL}/reserve-{part}"


def damage_name(data_log: int, offset: int) -> str:
    """Return the name of a copy of damaged bytes that began there."""
    return f"{QUARANTINE}/damage-{data_log}-{offset}"


def data_log_id(base_name: str) -> int | None:
    """Return the id in a base name of data_log_name. None: it is any other file."""
    match = _DATA_LOG.fullmatch(base_name)
    if match is None:
        return None
    data_log = int(match[1])
    return data_log if data_log <= DATA_LOG_ID_MAX else None


def tmp_file_name(number: int) -> str:
    """Return the name of the tmp file with this number."""
    assert number >= 1, f"no tmp file has number {number}"
    return f"{TMP_STORAGE}/tmp-{number}.dat"


def tmp_file_number(base_name: str) -> int | None:
    """Return the number in a base name of tmp_file_name. None: it is any other file."""
    match = _TMP_FILE.fullmatch(base_name)
    return int(match[1]) if match is not None else None


def import_name(load_id: str, state: str) -> str:
    """Return the name of the file for a load in that state: "new", "load" (published), "taken" or "refused"."""
    return f"{IMPORT}/{load_id}.{state}"


def import_load_id(base_name: str, state: str) -> str | None:
    """Return the load id in a base name of import_name. None: it is any other file."""
    load_id = base_name.removesuffix(f".{state}")
    return load_id if load_id != base_name and _LOAD_ID.fullmatch(load_id) else None


def import_part_name(set_id: bytes, number: int, nonce: int) -> str:
    """Return the name of a part of an import set. nonce: tells the attempts at one part apart."""
    return f"{IMPORT}/part-{set_id.hex()}-{number}-{nonce:016x}.data"


def import_part(base_name: str) -> tuple[bytes, int, int] | None:
    """Return (set id, number, nonce) in a base name of import_part_name. None: it is any other file."""
    match = _PART.fullmatch(base_name)
    return (bytes.fromhex(match[1]), int(match[2]), int(match[3], 16)) if match is not None else None


def validate_load_id(load_id: object) -> str:
    """Return a load id that may be the name of a file; SettingsError for any other."""
    if isinstance(load_id, str) and _LOAD_ID.fullmatch(load_id):
        return load_id
    raise SettingsError(
        f"load_id={reprlib.repr(load_id)} cannot name a load: 1 to 100 letters, digits, '-', '_' and '.', no '.' first"
    )


PathArgument = str | os.PathLike[str]


def validate_broker_name(name: object) -> None:
    """Raise SettingsError unless a name may be that of a directory of its own."""
    if not isinstance(name, str):
        raise ArgumentError(f"broker_name={reprlib.repr(name)} must be a str, not {type(name).__name__}")
    if len(name) > BROKER_NAME_CHARACTERS_MAX:
        raise SettingsError(
            f"broker_name={reprlib.repr(name)} has {len(name)} characters,"
            f" the most is {BROKER_NAME_CHARACTERS_MAX}: shorten it"
        )
    if not _BROKER_NAME.fullmatch(name) or name in (".", ".."):
        raise SettingsError(
            f"broker_name={reprlib.repr(name)} cannot be a directory:"
            " use letters, digits, '-', '_' and '.', and not '.' or '..'"
        )


def check_path(what: str, path: object) -> str:
    """Return a path as text. SettingsError: it names no place; empty text is not the current directory.

    what: the name of the argument, for the error.
    """
    try:
        text = os.fspath(path)  # type: ignore[call-overload]
    except TypeError:
        raise ArgumentError(f"{what}={reprlib.repr(path)} must be a path, not {type(path).__name__}") from None
    if not isinstance(text, str) or not text or "\0" in text:
        problem = f"{what}={reprlib.repr(path)} must be a non-empty path without NUL characters, as str"
        raise argument_error(problem, text, str)
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise SettingsError(
            f"{what}={reprlib.repr(path)} holds half a surrogate pair: no file has such a name"
        ) from None
    return text


def store_root(directory: PathArgument, broker_name: str) -> str:
    """Return the directory of one broker's store. SettingsError: it can't be a path."""
    validate_broker_name(broker_name)
    return os.path.join(check_path("directory", directory), broker_name)


def archive_root(archive_directory: PathArgument, broker_name: str, root: str) -> str:
    """Return the archive directory of a store with that root, if it is separate.

    SettingsError: it is inside the store.
    """
    path = store_root(archive_directory, broker_name)
    place, own = os.path.realpath(path), os.path.realpath(root)
    if place == own or place.startswith(own + os.sep):
        raise SettingsError(f"archive_directory: {path} lies in the store itself: name another place, or none")
    return path


def index_path(root: str) -> str:
    """Return the directory of the metadata store's own files."""
    return os.path.join(root, INDEX_DIRECTORY)


_OF_THE_PATH: Final = frozenset(
    (
        errno.EACCES,
        errno.EINVAL,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    )
)
"""Errors that are about a directory which nobody could use this way, on a disk that may be sound."""


def refusal(root: str, error: OSError) -> ForebayError:
    """Return the error for a store's directory that the system refused: SettingsError if another one would do."""
    if error.errno not in _OF_THE_PATH:
        return StoreFailed(f"{root} can't be opened ({error.strerror})")
    found = os.path.abspath(root)
    while not os.path.lexists(found):
        found = os.path.dirname(found)
    if not os.path.isdir(found):
        return SettingsError(f"{root} can't be opened: {found} is not a directory; name a directory, or a new one")
    return SettingsError(
        f"{root} can't be opened: the system refuses to make it in {found} ({error.strerror}); name another directory,"
        " or give this user the right to write there"
    )


def after_fork_in_child(callback: Callable[[], None]) -> None:
    """Call back in every child that this process forks, if the platform can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=callback)


_held: dict[tuple[int, int], DirectoryLock] = {}
"""The locks of this process by directory (device, inode): some network file systems have one flock per process."""


class DirectoryLock:
    """The lock that makes one owner of a store's directory, among processes and within this one.

    The directory must exist. A child made by fork does not inherit ownership: its copy of the lock is closed without
    unlocking, and the parent goes on undisturbed.
    """

    def __init__(
        self,
        root: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.root = os.path.abspath(root)
        self._path = os.path.join(self.root, LOCK)
        self._clock = clock
        self._sleep = sleep
        self._wall_clock = wall_clock
        self._descriptor = -1
        self._directory = (0, 0)

    def acquire(self, wait_seconds: float = 0.0) -> None:
        """Become the owner, or raise StoreLocked after wait_seconds; with 0 at once."""
        assert self._descriptor < 0, "acquired twice"
        started = self._clock()
        while (holder := self._try()) is not None:
            waited = self._clock() - started
            if waited >= wait_seconds:
                raise StoreLocked(self.root, holder, waited)
            self._sleep(min(_RETRY_SECONDS, wait_seconds - waited))

    def held(self) -> bool:
        """Return whether the lock file in place is still the one that was locked.

        Two system calls: check it occasionally.
        """
        if self._descriptor < 0:
            return False
        try:
            return os.path.samestat(os.lstat(self._path), os.fstat(self._descriptor))
        except OSError:
            return False

    def release(self) -> None:
        """Release the directory. Does nothing if it is not held, or in a forked child."""
        if self._descriptor < 0:
            return
        try:
            _write_holder(self._descriptor, b"")
            # Closing alone would leave the lock with a child that C code has forked.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        finally:
            self._forget()

    def _try(self) -> str | None:
        """Take the lock and return None, or return who has it."""
        state = os.stat(self.root)
        directory = (state.st_dev, state.st_ino)
        if _held.setdefault(directory, self) is not self:
            return f"another handle of this process (pid {os.getpid()})"
        self._directory = directory
        holder: str | None = "nobody"
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            holder = self._lock()
        finally:
            if holder is not None:
                self._forget()
        return holder

    def _lock(self) -> str | None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read_holder(self._descriptor)
        if not self.held():
            return "whoever replaced the lock file just now"
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._wall_clock()))
        _write_holder(self._descriptor, f"pid {os.getpid()} on {os.uname().nodename} since {since}".encode())
        return None

    def _forget(self) -> None:
        """Close without unlocking: in a forked child the lock is the parent's, and LOCK_UN would release it."""
        _held.pop(self._directory, None)
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _write_holder(descriptor: int, text: bytes) -> None:
    """Write who holds the lock. Best effort: a full disk must not keep the store from being opened and emptied."""
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)
    except OSError:
        pass


def _read_holder(descriptor: int) -> str:
    """Return what the holder wrote about itself; "" if the content does not look like that."""
    text = os.pread(descriptor, 256, 0).decode("ascii", "replace")
    return text if _HOLDER.fullmatch(text) else "another process"


def _forget_in_child() -> None:
    for lock in list(_held.values()):
        lock._forget()


os.register_at_fork(after_in_child=_forget_in_child)
