"""Why each data log is needed, as exact counts: what decides whether cleanup may delete it."""

from __future__ import annotations


class DataLogUse:
    """Why a data log is needed, as exact counts."""

    __slots__ = ("pending_messages", "pending_bytes", "acked_data_logs", "committed_data_logs")

    def __init__(self) -> None:
        self.pending_messages = 0
        self.pending_bytes = 0
        self.acked_data_logs: set[int] = set()
        """Other data logs of which records are undone by records in this one: messages that were acknowledged or
        moved here. They would come back if this one went before those."""
        self.committed_data_logs: set[int] = set()
        """Other data logs that hold messages of which the commit is in this one."""


def use_of(uses: dict[int, DataLogUse], data_log: int) -> DataLogUse:
    """Return the use of a data log, made where there is none."""
    use = uses.get(data_log)
    if use is None:
        use = uses[data_log] = DataLogUse()
    return use
