"""PersistentLaneState: what lanes of messages in the journal and the index have and others have not."""

from __future__ import annotations

from ....store.index.destination_lane import DeletedLane, DestinationLane
from ....store.index.fingerprint import BlockSurvey
from ....store.index.fingerprints import Candidate, has_fingerprints
from ....store.index.pending_lane import JournaledLane, PendingLane
from ...selectors.selector import Selector
from ..model import ConsumedDestination, LaneState
from ..selector_groups.matching import NO_NAMES


class PersistentLaneState(LaneState):
    """Dispatch's state of a lane of messages in the journal, of a queue, a topic or a subscription.

    The state lock guards it.

    Its subclasses say how messages arrive; all else that only lanes in the journal and the index have is here.

    The lane of a queue or topic is one lane in the index: `pending_lane` is `destination_lane`. The lane of a
    subscription is two: its own, in which it acknowledges, and the topic's, which knows the messages and where they
    are.
    """

    __slots__ = ("destination_lane",)

    def __init__(
        self,
        destination: ConsumedDestination,
        destination_lane: DestinationLane,
        id_prefix: str,
        pending_lane: PendingLane | None = None,
    ) -> None:
        """Make the state of a lane.

        destination_lane: the lane of the queue or topic.
        pending_lane: in which messages are pending, if that is another one, as in a subscription to that topic.
        """
        super().__init__(destination, destination_lane if pending_lane is None else pending_lane, id_prefix)
        # The lane of the queue or topic to which records add messages.
        self.destination_lane = destination_lane

    def quarantine(self, sequence: int) -> bool:
        """Set aside a message that can't be read, as MessageStore.quarantine does. Requires: no lock."""
        pending_lane = self.pending_lane
        assert isinstance(pending_lane, JournaledLane)
        return self.parts.message_store.quarantine(pending_lane, sequence)

    def skip_names(self, selector: Selector | None) -> frozenset[str]:
        """Return the headers that the selector names if the index can keep fingerprints of them; else none."""
        names = NO_NAMES if selector is None else selector.header_names
        return names if has_fingerprints(names) else NO_NAMES

    def next_candidate(self, selector: Selector, names: frozenset[str], sequence: int) -> Candidate | None:
        """Return where the next message may be that a selector matches, by the fingerprints of the index."""
        if not names:
            return super().next_candidate(selector, names, sequence)
        return self.parts.message_store.next_candidate(self.destination_lane, names, sequence, selector.may_match)

    def note_survey(self, survey: BlockSurvey) -> None:
        """Let the index keep fingerprints of the headers that were examined."""
        self.parts.message_store.note_survey(self.destination_lane, survey)

    def make_survey_room(self) -> None:
        """Let the index store its fingerprints if RAM has no room for more. Requires: no lock."""
        self.parts.message_store.make_fingerprint_room()

    def give_up(self, sequence: int) -> None:
        """Hand a message that can't be read to the TargetArea, which has it recorded as lost."""
        self.target_area.pass_unreadable(self, sequence)

    def remove_all(self) -> None:
        """Become a lane without messages, because its destination is deleted or its subscription has ended."""
        self.pending_lane = self.destination_lane = DeletedLane(self.destination_lane)
