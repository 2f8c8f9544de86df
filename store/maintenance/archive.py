"""Archive: keep data logs that the journal no longer needs, for later examination.

If the archive is archive/ beside the journal, a data log arrives there by a rename. In another directory, perhaps of
another file system, it is a copy, which is complete and synced before it gets its name. In both cases it is there
before its name in the journal is removed for good, so a crash leaves it in one place or in both. It is removed only
after a drop record, so recovery never reads it again.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from ..disk.disk import Disk
from ..disk.layout import ARCHIVE, data_log_id, data_log_name
from ..environment.locks import OwnedLock
from ..errors import SettingsError
from ..format.record import RecordDamaged
from ..journal.data_log import DATA_LOG_HEADER_BYTES, UnknownVersion, decode_data_log_header

PIECE_BYTES: Final = 64 * 1024
"""A data log is copied in pieces of this size."""

_PART: Final = ".part"
_PROBE: Final = "probe"


class Archive:
    """The archive of one store. Call `prepare` first."""

    def __init__(self, disk: Disk, elsewhere: Disk | None = None) -> None:
        """Make the archive. disk: that of the store. elsewhere: that of the archive, if it is not archive/ on the
        first.
        """
        self._disk = disk
        self._elsewhere = elsewhere
        self._place = disk if elsewhere is None else elsewhere
        self._directory = ARCHIVE if elsewhere is None else ""
        self._copying = OwnedLock()

    def prepare(self, store_id: bytes) -> None:
        """Make the directory. SettingsError: it can't be used, or has data logs of another store."""
        place = self._place
        try:
            place.make_directory(self._directory)
            for name in place.list(self._directory):
                if name.endswith(_PART) and data_log_id(name.removesuffix(_PART)) is not None:
                    place.remove(self._name(name))
            with suppress(FileNotFoundError):
                place.remove(self._name(_PROBE))
            place.open(self._name(_PROBE), create=True).close()
            place.remove(self._name(_PROBE))
            kept = sorted(filter(None, map(data_log_id, place.list(self._directory))))
            is_foreign = any(self._store_id(data_log) != store_id for data_log in {*kept[:1], *kept[-1:]})
        except OSError as error:
            raise SettingsError(f"the archive directory can't be used ({error.strerror or error})") from error
        if is_foreign:
            raise SettingsError("the archive directory has data logs of another store: name one that is empty")

    def _name(self, base_name: str) -> str:
        return f"{self._directory}/{base_name}" if self._directory else base_name

    def _kept_name(self, data_log: int) -> str:
        return self._name(data_log_name(data_log).rpartition("/")[2])

    def _store_id(self, data_log: int) -> bytes:
        try:
            return decode_data_log_header(_head(self._place, self._kept_name(data_log))).store_id
        except (RecordDamaged, UnknownVersion):
            return b""

    def copy(self, data_logs: Sequence[int]) -> tuple[list[int], OSError | None]:
        """Copy data logs that nothing needs while they are in the journal. This is slow and blocks no other call.

        NestedCall: this thread is copying already.

        Return those that may be removed now, and the error if those are not all.
        """
        ready: list[int] = []
        for data_log in data_logs:
            try:
                if self._elsewhere is not None:
                    self._copy(data_log, self._elsewhere)
            except OSError as error:
                return ready, error
            ready.append(data_log)
        return ready, None

    def keep(self, data_logs: Iterable[int]) -> None:
        """Bring data logs here whose drop record is synced. Those that are here already are skipped.

        Afterwards their names may be removed from the journal. OSError: some are missing here; call again later.
        """
        for data_log in data_logs:
            if self._elsewhere is not None:
                self._copy(data_log, self._elsewhere)
            elif self._is_due(data_log):
                self._disk.rename(data_log_name(data_log), self._kept_name(data_log))
        self._place.sync_directory(self._directory)

    def _is_due(self, data_log: int) -> bool:
        """Return whether it is in the journal and not here. OSError: another one has its name here."""
        name, kept_name = data_log_name(data_log), self._kept_name(data_log)
        if not self._disk.exists(name):
            return False
        if not self._place.exists(kept_name):
            return True
        if _head(self._disk, name) != _head(self._place, kept_name):
            raise OSError(errno.EEXIST, "the archive has another data log of that name", kept_name)
        return False

    def _copy(self, data_log: int, elsewhere: Disk) -> None:
        if not self._is_due(data_log):
            return
        with self._copying:  # two cleanups would write to the same part
            if not self._is_due(data_log):
                return
            kept_name = self._kept_name(data_log)
            self._copy_part(data_log, kept_name + _PART, elsewhere)
            elsewhere.rename(kept_name + _PART, kept_name)

    def _copy_part(self, data_log: int, part: str, elsewhere: Disk) -> None:
        source = self._disk.open_for_reading(data_log_name(data_log))
        try:
            with suppress(FileNotFoundError):
                elsewhere.remove(part)
            target = elsewhere.open(part, create=True)
            try:
                offset = 0
                while piece := source.read(offset, PIECE_BYTES):
                    target.append(piece)
                    offset += len(piece)
                target.sync()
            finally:
                target.close()
        finally:
            source.close()


def _head(disk: Disk, name: str) -> bytes:
    """Return bytes that tell a data log from all others, because its header has a random salt."""
    file = disk.open_for_reading(name)
    try:
        return file.read(0, DATA_LOG_HEADER_BYTES)
    finally:
        file.close()
