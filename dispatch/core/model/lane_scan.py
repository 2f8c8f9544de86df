"""LaneScan: how a scan for a selector goes through a lane. FingerprintScan skips blocks without a match.

A scan is the search for messages that a selector matches: a load behind the frontier, a browse, or the acks that a
subscription needs for messages that do not match.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ....store.index.destination_lane import DestinationLane
from ....store.index.fingerprint import BlockSurvey
from ....store.index.fingerprints import Candidate, Fingerprints, has_fingerprints
from ...selectors.selector import Selector
from .matching import NO_NAMES


class LaneScan:
    """Examines every message, because nothing is known about headers. Lanes of non-persistent messages have it."""

    __slots__ = ()

    def skip_names(self, selector: Selector | None) -> frozenset[str]:
        """Return the headers by which a scan for a selector may skip blocks: all that the selector names, or none."""
        return NO_NAMES

    def next_candidate(self, selector: Selector, names: frozenset[str], sequence: int) -> Candidate | None:
        """Return where the next message may be that a selector matches. None: there is none.

        names: the `skip_names` of the selector. Without names every message is a candidate, and no survey is made.
        O(blocks); it reads none of them.
        """
        return Candidate(sequence, NO_NAMES)

    def note_survey(self, survey: BlockSurvey) -> None:
        """Take in the headers of examined messages. Requires: a candidate has made the survey."""
        raise AssertionError("without names no survey is made")

    def make_survey_room(self) -> None:
        """Make room for what `note_survey` takes in next, if there is none. Requires: no lock."""
        raise AssertionError("without names no survey is made")


class FingerprintScan(LaneScan):
    """Skips blocks by the fingerprints that the index keeps of headers, and lets the index keep more of them."""

    __slots__ = ("_fingerprints", "_make_room", "_destination_lane")

    def __init__(
        self, fingerprints: Fingerprints, make_room: Callable[[], None], destination_lane: DestinationLane
    ) -> None:
        """make_room: makes room in RAM for more fingerprints; called without a lock.
        destination_lane: the store's lane of the queue or topic, whose blocks have the fingerprints.
        """
        self._fingerprints = fingerprints
        self._make_room = make_room
        self._destination_lane = destination_lane

    def skip_names(self, selector: Selector | None) -> frozenset[str]:
        """Return the headers that the selector names if the index can keep fingerprints of them; else none."""
        names = NO_NAMES if selector is None else selector.header_names
        return names if has_fingerprints(names) else NO_NAMES

    def next_candidate(self, selector: Selector, names: frozenset[str], sequence: int) -> Candidate | None:
        """Return where the next message may be that a selector matches, by the fingerprints of the index."""
        if not names:
            return Candidate(sequence, NO_NAMES)
        return self._fingerprints.next_candidate(self._destination_lane, names, sequence, selector.may_match)

    def note_survey(self, survey: BlockSurvey) -> None:
        """Let the index keep fingerprints of the headers that were examined."""
        self._fingerprints.examined(self._destination_lane, survey)

    def make_survey_room(self) -> None:
        """Let the index store its fingerprints if RAM has no room for more. Requires: no lock."""
        self._make_room()


FULL_SCAN: Final = LaneScan()
"""The scan of all lanes without fingerprints."""
