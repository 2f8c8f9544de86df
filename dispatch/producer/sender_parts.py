"""SenderParts: the parts that all senders of an open store share."""

from __future__ import annotations

from ...store.checkpoint.checkpointer import Checkpointer
from ...store.errors import MessageTooLarge
from ...store.message_store import MessageStore
from ..core.confirmer import ThreadConfirmer
from ..core.monitor import Monitor
from ..core.owners import DestinationOwners
from ..core.publisher import Publisher
from ..core.redelivery.timed_lanes import TimedLanes
from ..topics.fan_out_opener import FanOutOpener
from ..transactions.transaction_registry import TransactionRegistry
from .full_policy import FullPolicy
from .lifetimes import Lifetimes
from .slice_writer import SliceWriter
from .space_lines import SpaceLines


class SenderParts:
    """The parts that all senders of an open store share, and the largest size of a message.

    Each send reads that size here, and it follows the memory limit. The state lock guards it.
    """

    def __init__(
        self,
        *,
        monitor: Monitor,
        message_store: MessageStore,
        checkpointer: Checkpointer,
        publisher: Publisher,
        thread_confirmer: ThreadConfirmer,
        destinations: DestinationOwners,
        lifetimes: Lifetimes,
        slices: SliceWriter,
        space: SpaceLines,
        full_policy: FullPolicy,
        fan_out_opener: FanOutOpener,
        transactions: TransactionRegistry,
        timed: TimedLanes,
        slice_messages_max: int,
        max_message_bytes: int,
        memory_limit_bytes: int,
    ) -> None:
        """Make the one SenderParts of a store.

        slice_messages_max: most messages that a send writes in one slice.
        max_message_bytes, memory_limit_bytes: the settings of these names, as bytes.
        """
        self.monitor = monitor
        self.clock_ms = self.monitor.clock_ms
        # Adds persistent messages to the `destination_lane` of a LaneState, of which it is the `backing_store` too.
        self.message_store = message_store
        self.checkpointer = checkpointer
        self.publisher = publisher
        self.thread_confirmer = thread_confirmer
        self.syncs_always = self.publisher.syncs_always
        self.lanes = destinations.lanes
        self.message_group_queues = destinations.message_group_queues
        self.lifetimes = lifetimes
        # Writes messages with an id or with times.
        self.slices = slices
        # Where senders wait for disk space.
        self.space = space
        # What a full destination does for senders that do not wait.
        self.full_policy = full_policy
        self.fan_out_opener = fan_out_opener
        self.transactions = transactions
        # Knows the lanes that have messages with a delay or an expiry.
        self.timed = timed
        self.slice_messages_max = slice_messages_max
        self.limit_messages(max_message_bytes, memory_limit_bytes)

    def limit_messages(self, max_message_bytes: int, memory_limit_bytes: int) -> None:
        """Set how large a message may be. Requires: the lock, or that there is no other user yet."""
        self.max_message_bytes = min(max_message_bytes, memory_limit_bytes)
        self.is_limited_by_setting = max_message_bytes <= memory_limit_bytes

    def too_large(self, size_bytes: int) -> MessageTooLarge:
        """Return the error for a message of this size."""
        limit = "max_message_bytes" if self.is_limited_by_setting else "memory_limit"
        return MessageTooLarge(size_bytes, self.max_message_bytes, limit)
