"""The uses of data logs: exact counts of why each data log is needed, so that cleanup knows which it may delete."""

from __future__ import annotations


class DataLogUse:
    """The exact counts of the reasons to keep one data log."""

    __slots__ = ("pending_messages", "pending_bytes", "acked_data_logs", "committed_data_logs")

    def __init__(self) -> None:
        self.pending_messages = 0
        self.pending_bytes = 0
        # Other data logs whose messages are acknowledged or relocated by records in this one. If this data log went
        # first, those messages would come back.
        self.acked_data_logs: set[int] = set()
        # Other data logs with messages of transactions that are committed by a record in this one.
        self.committed_data_logs: set[int] = set()


def use_of(uses: dict[int, DataLogUse], data_log: int) -> DataLogUse:
    """Return the use of a data log; make it if there is none."""
    use = uses.get(data_log)
    if use is None:
        use = uses[data_log] = DataLogUse()
    return use
