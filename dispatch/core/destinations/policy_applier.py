"""PolicyApplier: give a queue or topic the limits, duplicate window and lifetime of its policy when it is opened."""

from __future__ import annotations

from ....store.format.destination_table import DestinationTable
from ...admission.duplicate_windows import DuplicateWindows
from ...admission.limits import DestinationLimits
from ...config.policies import Policies
from ..monitor import Monitor
from .destination_state import DestinationState


class PolicyApplier:
    """Gives queues and topics the limits, duplicate window and lifetime of their policies.

    The state lock guards it; every method requires it held.
    """

    def __init__(self, monitor: Monitor, rows: DestinationTable, windows: DuplicateWindows, policies: Policies) -> None:
        """rows: all queues and topics that exist."""
        self._monitor = monitor
        self._rows = rows
        self._windows = windows
        self._policies = policies

    def apply(self, destination: DestinationState) -> None:
        """Give a queue or topic its limits, its duplicate window, and the time without use until it is deleted."""
        number, name, monitor = destination.number, destination.name, self._monitor
        has_duplicate_window = self._windows.watch(number, name)
        policy = self._policies.of(name)
        is_limiting = policy.is_limiting
        limits = DestinationLimits(destination, policy, monitor.lock, monitor.monotonic) if is_limiting else None
        inactive_seconds = self.inactive_seconds(number, name)
        destination.follow_policy(limits, inactive_seconds, has_duplicate_window=has_duplicate_window)

    def inactive_seconds(self, destination_number: int, name: str) -> float | None:
        """Return after how many seconds without use a queue or topic is deleted. None: never."""
        policy = self._policies.of(name)
        is_kept = policy.duplicate_window or self._rows[destination_number].is_temporary
        return None if is_kept else policy.inactive_seconds

    def forget(self, destination_number: int) -> None:
        """Forget what the senders of a deleted queue or topic left in its duplicate window."""
        self._windows.forget(destination_number)
