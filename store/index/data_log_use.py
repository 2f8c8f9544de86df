"""DataLogUse: what needs a data log. Cleanup deletes data logs that nothing needs."""

from __future__ import annotations


class DataLogUse:
    """The pending messages of one data log, and the other data logs that need its records."""

    __slots__ = ("pending_messages", "pending_bytes", "acked_data_logs", "committed_data_logs")

    def __init__(self) -> None:
        self.pending_messages = 0
        self.pending_bytes = 0
        # Other data logs with messages that records in this one acknowledged or relocated. If this data log were
        # deleted before those, their messages would come back.
        self.acked_data_logs: set[int] = set()
        # Other data logs with messages of transactions that a record in this one commits.
        self.committed_data_logs: set[int] = set()


def use_of(uses: dict[int, DataLogUse], data_log: int) -> DataLogUse:
    """Return the use of a data log, made if needed."""
    use = uses.get(data_log)
    if use is None:
        use = uses[data_log] = DataLogUse()
    return use
