"""ListEvents: what the areas tell the owners above them, which are made later. Nothing here survives the process."""

from __future__ import annotations

from ..model import LaneState, TargetList


class ListEvents:
    """Hears nothing: for a store that is only played. Every method requires the state lock."""

    def expired(self, lane: LaneState, sequence: int) -> None:
        """Remove a message that a list passed over because its time is over."""

    def sampled(self, target: TargetList) -> None:
        """Look at a list that reached its `sample_at_bytes`."""

    def unread(self, lane: LaneState) -> None:
        """Note a lane that no consumer reads any more, and of which RAM has not all."""

    def gone(self, lane: LaneState) -> None:
        """Note a lane that has ended."""
