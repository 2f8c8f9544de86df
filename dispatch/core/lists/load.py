"""Load: messages on their way from the caches and the disk into one list.

A load is chosen under the state lock, read outside it, and put into its list under the lock again: see
loading/eager_loader.py. The list is a type parameter, because a load calls no method of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import chain
from typing import Generic, TypeVar

from ....store.index.fingerprint import BlockSurvey
from ....store.journal.regions import Region
from ....store.stored_message import StoredMessage
from .list_contents import ListContents

ListT = TypeVar("ListT", bound=ListContents)


class LoadSource(Enum):
    """Where the list has the messages of a load before the load is installed."""

    RETURNED = "returned"
    REFERENCES = "references"
    BEHIND_FRONTIER = "behind the frontier"


class Load(Generic[ListT]):
    """One load. It begins and ends under the lock and reads outside it. No other load of its list runs meanwhile."""

    __slots__ = (
        "target",
        "runs",
        "last",
        "needs_matching",
        "is_return",
        "is_needed",
        "recheck_count",
        "began_at",
        "needed_claims",
        "from_cache",
        "regions",
        "reserved_bytes",
        "buffer_bytes",
        "brings_all",
        "messages",
        "held",
        "unwanted",
        "unreadable",
        "survey",
    )

    def __init__(
        self,
        target: ListT,
        runs: list[tuple[int, int]],
        source: LoadSource,
        *,
        is_needed: bool,
        needed_claims: bool,
        recheck_count: int,
        began_at: float,
    ) -> None:
        """Begin with the chosen runs; nothing is reserved or read yet."""
        # The list that the load is for.
        self.target = target
        # Runs of sequences to load, in order, all in one block.
        self.runs = runs
        # The last sequence to load. Parts of the runs behind it are not loaded.
        self.last = runs[-1][1]
        # Whether its messages must be matched with the selector, if there is one. References are known to match.
        self.needs_matching = source is not LoadSource.REFERENCES
        # Whether the runs are of messages that came back.
        self.is_return = source is LoadSource.RETURNED
        # Whether a consumer waits for it. If so, messages that memory can't hold become lazy; else the load is cut.
        self.is_needed = is_needed
        # The value of the lane's `recheck_count` when the load began.
        self.recheck_count = recheck_count
        # When the load was chosen, in monotonic seconds.
        self.began_at = began_at
        # Whether messages of its list had to be claimed when the load began.
        self.needed_claims = needed_claims
        # Sequences in `held` that came from a cache.
        self.from_cache: set[int] = set()
        # Regions on disk with the messages that no cache had.
        self.regions: list[Region] = []
        # Bytes reserved in the lists' holder for the messages.
        self.reserved_bytes = 0
        # Bytes charged for the read buffer.
        self.buffer_bytes = 0
        # Whether the load brings all chosen messages, all from disk. This usual case saves a pass over the messages.
        self.brings_all = False

        # The messages that were found, if the load brings all, in order.
        self.messages: list[StoredMessage] = []
        # The messages that were found, by sequence, if the load does not bring all. Messages on disk that the selector
        # surely does not match are left out. A message that is too large for RAM has no body.
        self.held: dict[int, StoredMessage] = {}
        # Sequences that the selector does not match or can't judge. Unless the lane notes unmatched messages, sequences
        # read from disk are left out.
        self.unwanted: set[int] = set()
        # Sequences that can't be read, each with the problem.
        self.unreadable: list[tuple[int, str]] = []
        # Records the headers of the messages for fingerprints. None: they are known already, or of no use.
        self.survey: BlockSurvey | None = None

    @property
    def first(self) -> int:
        return self.runs[0][0]

    def sequences(self) -> Iterator[int]:
        """Yield the sequences of the runs, in order."""
        return chain.from_iterable(range(first, last + 1) for first, last in self.runs)

    def cut(self, last: int) -> None:
        """End the load with this message, and leave out the parts of the runs behind it."""
        self.last = last
        self.runs = [(first, min(end, last)) for first, end in self.runs if first <= last]

    def end_before(self, sequence: int) -> None:
        """End the load before a message, if it does not end earlier. The runs stay as they are."""
        self.last = min(self.last, sequence - 1)

    def hold(self, message: StoredMessage, charge: int) -> None:
        """Add a message that was found in a cache. Requires: its charge is reserved."""
        self.reserved_bytes += charge
        self.held[message[0]] = message
