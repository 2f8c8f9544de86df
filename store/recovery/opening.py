"""Opening a directory: find out which store it has, recover it, and repair it if loss is accepted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from ..disk.disk import Disk
from ..disk.layout import JOURNAL, data_log_id, data_log_name
from ..environment.progress import OnProgress, tell_nobody
from ..errors import JournalCorrupt
from ..format.record import RecordDamaged
from ..format.state_record import StateRecord
from ..journal.data_log import DATA_LOG_HEADER_BYTES, UnknownVersion, decode_data_log_header
from ..journal.shutdown_marker import ShutdownMarker
from ..state.journaled_state import JournaledState
from .recovery import RecoveredJournal, Recovery
from .repair import Repair


def find_store_id(disk: Disk) -> bytes | None:
    """Return the store's id from the first data log whose header verifies. None: there is none."""
    for data_log in sorted(filter(None, map(data_log_id, disk.list(JOURNAL)))):
        with closing(disk.open_for_reading(data_log_name(data_log))) as file:
            header = file.read(0, DATA_LOG_HEADER_BYTES)
        try:
            return decode_data_log_header(header).store_id
        except RecordDamaged:
            pass
        except UnknownVersion as version:
            raise JournalCorrupt(data_log, 0, str(version)) from None
    return None


def recover(
    journaled: JournaledState,
    marker: ShutdownMarker | None,
    store_id: bytes,
    write_checkpoint: Callable[[int, int, StateRecord], None],
    *,
    marked_end: int,
    verifies_all: bool,
    repair_salt: Callable[[], int] | None,
    on_progress: OnProgress = tell_nobody,
) -> RecoveredJournal:
    """Recover; if the journal is damaged, repair it and recover once more. Raises JournalCorrupt.

    marker, write_checkpoint, marked_end, verifies_all, on_progress: see Recovery. repair_salt: makes the salt of a data
    log that replaces a missing one; None: damage is refused.
    """
    recovery = Recovery(
        journaled,
        marker,
        store_id,
        write_checkpoint,
        marked_end=marked_end,
        verifies_all=verifies_all,
        on_progress=on_progress,
    )
    try:
        return recovery.run()
    except JournalCorrupt:
        if repair_salt is None:
            raise
    repair = Repair(journaled.disk, store_id, recovery.durable_end, repair_salt)
    damaged = repair.run(recovery.replay.existing_data_logs)
    journaled.reset()
    again = Recovery(
        journaled,
        marker,
        store_id,
        write_checkpoint,
        marked_end=marked_end,
        verifies_all=verifies_all,
        known_durable_end=repair.durable_end,
        on_progress=on_progress,
    )
    found = again.run()
    found.damaged = damaged + found.damaged
    return found
