"""Load: messages on their way from the caches and the disk into one list.

A load is chosen under the state lock, read outside it, and put into its list
under it again: loading/eager.py says how. It knows of its list no more than
its type. Nothing here survives the process.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from ....store.index.fingerprint import BlockSurvey
from ....store.journal.reading import Region
from ....store.stored_message import StoredMessage
from .list_contents import ListContents

L = TypeVar("L", bound=ListContents)


class Load(Generic[L]):
    """It begins and ends under the lock, and reads outside it. Meanwhile nobody else loads for the list."""

    __slots__ = (
        "target",
        "runs",
        "last",
        "is_scan",
        "is_return",
        "purges",
        "began_at",
        "was_shared",
        "from_cache",
        "regions",
        "reserved_bytes",
        "buffer_bytes",
        "is_plain",
        "messages",
        "held",
        "unwanted",
        "unreadable",
        "survey",
    )

    def __init__(
        self,
        target: L,
        runs: list[tuple[int, int]],
        *,
        is_scan: bool,
        is_return: bool,
        was_shared: bool,
        purges: int,
        began_at: float,
    ) -> None:
        """Begin with what was chosen: nothing is reserved or read yet."""
        # What is loaded.
        self.target = target
        """The list that is loaded."""
        self.runs = runs
        """Runs of sequences to load, in order, all in one block."""
        self.last = runs[-1][1]
        """The last sequence to load: what of the runs lies behind it is left."""
        self.is_scan = is_scan
        """The selector is still to be evaluated: the runs come from behind the frontier, or have come back."""
        self.is_return = is_return
        """The runs are of messages that came back."""
        self.purges = purges
        """What `purges` of the lane was when the load began."""
        self.began_at = began_at
        """When the load was chosen, on the monotonic clock."""
        self.was_shared = was_shared
        """Whether its list was shared when the load began."""
        self.from_cache: set[int] = set()
        """Sequences of those in `held` that a cache gave away."""
        self.regions: list[Region] = []
        """Where on disk the messages lie that no cache had."""
        self.reserved_bytes = 0
        """What is charged to the lists for its messages."""
        self.buffer_bytes = 0
        """What is charged for the buffer of its reads."""
        self.is_plain = False
        """It brings all that was chosen, all from disk: the usual case, which saves a pass over the messages."""

        # What was found, in caches as it begins and on disk as it reads: this is put into the list.
        self.messages: list[StoredMessage] = []
        """The messages of a plain load, in order."""
        self.held: dict[int, StoredMessage] = {}
        """The messages of any other load, by sequence; those too large to hold have no body."""
        self.unwanted: set[int] = set()
        """Sequences that the selector does not match, or can't judge."""
        self.unreadable: list[tuple[int, str]] = []
        """Sequences that can't be read, each with the problem."""
        self.survey: BlockSurvey | None = None
        """Takes down what the headers of the messages are; None: that is known, or of no use."""

    @property
    def first(self) -> int:
        return self.runs[0][0]

    def hold(self, message: StoredMessage, charge: int) -> None:
        """Take in a message that was found in a cache, and for which so much is reserved."""
        self.reserved_bytes += charge
        self.held[message[0]] = message
