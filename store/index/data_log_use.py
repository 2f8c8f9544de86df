"""The uses of data logs: why each one is needed, as exact counts, so that cleanup knows what it may delete."""

from __future__ import annotations


class DataLogUse:
    """The exact counts of what needs a data log."""

    __slots__ = ("pending_messages", "pending_bytes", "acked_data_logs", "committed_data_logs")

    def __init__(self) -> None:
        self.pending_messages = 0
        self.pending_bytes = 0
        self.acked_data_logs: set[int] = set()
        """Other data logs of which records in this one undo records: messages were acknowledged or relocated here, and
        would come back if this data log went before those.
        """
        self.committed_data_logs: set[int] = set()
        """Other data logs with messages of transactions that a record in this one commits."""


def use_of(uses: dict[int, DataLogUse], data_log: int) -> DataLogUse:
    """Return the use of a data log, made where there is none."""
    use = uses.get(data_log)
    if use is None:
        use = uses[data_log] = DataLogUse()
    return use
