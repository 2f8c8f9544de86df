"""All errors that the library raises on purpose, in one tree.

    ForebayError
    ├─ SettingsError        a setting, argument or name that is not valid
    │   └─ ArgumentError    an argument of a type that the call does not take; a TypeError too
    ├─ StoreLocked          another process holds the directory
    ├─ StoreFailed          the disk failed a write or a sync; reopen to go on
    ├─ SpillFailed          the disk failed a write to tmp-storage; the messages are where they were
    ├─ StoreFull            a limit of disk, memory, or queue is reached; a queue.Full too
    │   ├─ TooManyFiles     the process has no file descriptor left
    │   └─ PropertiesFull   the properties of the store have reached their limit
    ├─ JournalCorrupt       bytes that were durable no longer verify
    ├─ MessageTooLarge      one message above what the settings admit
    ├─ DecodeError          a body that its queue's codec can't decode
    ├─ SelectorError        a selector that is not JMS SQL-92, or beyond its limits
    ├─ TransactionError     a transaction used out of order
    ├─ SubscriptionInUse    a durable subscription that already has a consumer
    ├─ StateError           a call for which it is too late; a RuntimeError too
    │   └─ AckTooLate       a delivery was settled after its ack deadline
    ├─ Empty                a get found no message in time; a queue.Empty too
    ├─ MessagesUnreadable   a search can't say whether a message exists, because some can't be read
    ├─ NotAwaited           an `await` or `async` is missing; a TypeError and an AttributeError too
    ├─ NestedCall           a signal handler or finalizer called the store from inside a call of its thread
    └─ Closed               the object was closed

Numbers are attributes, the text says what to do, and no text ever contains a body or a header value.
"""

from __future__ import annotations

import queue
from copy import copy


class ForebayError(Exception):
    """Root of the tree: catch it to catch everything that the library raises on purpose.

    Each error can be pickled and copied with its text and its numbers, as multiprocessing and concurrent.futures need.
    """

    stored: int = 0
    """How many of the first messages a `send_many` has stored, or a `move` moved. 0 for an error of any other call."""

    def __reduce__(self) -> tuple[object, ...]:
        """Return text and attributes for making the error again, because the constructors take numbers."""
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(kind: type[ForebayError], args: tuple[object, ...], attributes: dict[str, object]) -> ForebayError:
    error: ForebayError = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class SettingsError(ForebayError, ValueError):
    """A setting, argument or name is not valid. Nothing has changed; correct it and call again."""


class ArgumentError(SettingsError, TypeError):
    """An argument has a type that the call does not take. Nothing has changed; pass what the text names.

    Every public method raises it, compiled or interpreted, and never a bare TypeError. (Python itself raises TypeError
    for an argument that is missing or whose name the method does not know.)
    """


def argument_error(problem: str, value: object, *types: type) -> SettingsError:
    """Return ArgumentError if the value has none of these types, otherwise SettingsError: the value itself is wrong.

    A bool counts as an int only if bool is among the types.
    """
    is_of_them = isinstance(value, types) and (type(value) is not bool or bool in types)
    return SettingsError(problem) if is_of_them else ArgumentError(problem)


class StoreLocked(ForebayError):
    """Another process, or another handle of this one, holds the directory. Close it, or wait with lock_wait_seconds."""

    def __init__(self, directory: str, holder: str, waited_seconds: float) -> None:
        super().__init__(
            f"{directory} is held by {holder} (waited {waited_seconds:.1f} s): "
            "close that one, or open with a larger lock_wait_seconds"
        )
        self.directory = directory
        self.holder = holder
        self.waited_seconds = waited_seconds


class StoreFailed(ForebayError):
    """The disk failed a write or a sync, or a change of the state in RAM was interrupted.

    What was confirmed is kept; the outcome of the failed call is unknown. This handle accepts nothing more. A failed
    sync is never retried, because the kernel may have dropped the pages that it could not write (Rebello et al., "Can
    Applications Recover from fsync Failures?", 2020). Repair the disk, close, and open again. After an interruption
    (Ctrl-C, an exception of a signal handler or a timeout library, no memory) there is nothing to repair: close and
    open again.
    """

    def __init__(self, reason: str, cure: str = "cure the disk, then close and open again") -> None:
        super().__init__(f"{reason}: the store refuses further work; {cure}")
        self.reason = reason

    def again(self) -> StoreFailed:
        """Return an equal error to raise, with the same cause. The error that a store keeps is never raised itself.

        An error that is raised keeps all frames that it passes, with the messages in them, and the caller may add to
        its attributes.
        """
        fresh = copy(self)
        fresh.__cause__ = self.__cause__
        return fresh


class StoreFull(ForebayError, queue.Full):
    """A limit is reached: of the disk, of memory, of tmp-storage, or of the queue or topic.

    The call stored nothing; consume, clean up or raise the limit, then repeat it. `limit` says which one it is.
    """

    def __init__(
        self, needed_bytes: int, available_bytes: int, limit: str, *, stored: int = 0, remedy: str = ""
    ) -> None:
        """Make the error. remedy: what helps besides making room, if the limit does not tell."""
        # A setting or, with its value, a field of a policy. Anything else is the disk.
        name = limit.partition("=")[0]
        if not name.isidentifier():
            name = "memory_limit" if "memory_limit" in limit else ""
        remedy = remedy or (f"raise {name}" if name else "free disk space, or lower max_file_length")
        super().__init__(
            f"{needed_bytes} bytes are needed and {available_bytes} are left under {limit}: "
            f"consume or clean up, or {remedy}, then send again"
        )
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes
        self.limit = limit
        self.stored = stored


class TooManyFiles(StoreFull):
    """The process or the machine has no file descriptor left, though the store closed those that it can do without.

    The call did nothing, and the store goes on. Close files or connections, or raise RLIMIT_NOFILE, then call again.
    """

    def __init__(self) -> None:
        super().__init__(0, 0, "RLIMIT_NOFILE")
        self.args = (
            "no file descriptor is left, though the store gave up its own readers: close files or connections, or "
            "raise RLIMIT_NOFILE, then call again",
        )


class PropertiesFull(StoreFull):
    """The properties of the store have reached their limit. Nothing has changed.

    Delete some, or keep large values elsewhere. All properties are in RAM and in each data log, so they may take a
    quarter of max_file_length, and at most 1 MiB. What transactions without an outcome have set counts too.
    """

    def __init__(self, needed_bytes: int, limit_bytes: int, held_bytes: int) -> None:
        super().__init__(needed_bytes, max(limit_bytes - held_bytes, 0), "properties")
        self.limit_bytes = limit_bytes
        self.args = (
            f"{needed_bytes} bytes more are needed, and properties hold {held_bytes} of the {limit_bytes} bytes that "
            "they may (a quarter of max_file_length, at most 1 MiB): delete some, or keep large values elsewhere",
        )


class SpillFailed(ForebayError):
    """The disk failed a write to tmp-storage. Nothing was stored or lost: the messages are still in RAM.

    The journal is not affected, and the next spill tries again.
    """

    def __init__(self, needed_bytes: int, problem: str) -> None:
        super().__init__(
            f"{needed_bytes} bytes could not be written to tmp-storage ({problem}): "
            "nothing of them was stored; cure the disk, then send again"
        )
        self.needed_bytes = needed_bytes
        self.problem = problem


class JournalCorrupt(ForebayError):
    """Bytes that were durable no longer verify. Nothing has changed; the error names the place.

    ``forebay verify DIR`` lists every damaged place. Restore the data log from a copy, or accept the loss: with
    ``on_missing_data_log="report"`` the store opens, serves everything that is intact, and reports what is lost.
    """

    def __init__(self, data_log: int, offset: int, problem: str, behind_bytes: int = 0) -> None:
        super().__init__(
            f"data-{data_log}.log at offset {offset}: {problem}. Nothing was changed; {behind_bytes} bytes of journal "
            "lie behind that place. Run `forebay verify` for all damaged places and restore the data log from a copy, "
            'or open with on_missing_data_log="report" to go on without what is lost'
        )
        self.data_log = data_log
        self.offset = offset
        self.problem = problem
        # Bytes from the place to the end of the journal.
        self.behind_bytes = behind_bytes


class MessageTooLarge(ForebayError):
    """A message is above max_message_bytes or above the memory limit. Raise the named limit, or split the message."""

    def __init__(self, message_bytes: int, limit_bytes: int, limit: str) -> None:
        super().__init__(
            f"a message of {message_bytes} bytes is above {limit} ({limit_bytes} bytes): raise {limit} or split it"
        )
        self.message_bytes = message_bytes
        self.limit_bytes = limit_bytes
        self.limit = limit
        self.stored = 0


class DecodeError(ForebayError, ValueError):
    """A codec can't decode a body. The delivery is unchanged: read its `body`, then settle it.

    is_rejected: a `get` took the message, which is a dead letter now. The cause is the error of the codec.
    """

    def __init__(self, destination: str, message_id: str, problem: str, is_rejected: bool = False) -> None:
        super().__init__(
            f"message {message_id} of {destination} can't be decoded ({problem}): "
            + (
                "it was rejected; read its body in the dead-letter queue"
                if is_rejected
                else "its body is still there; reject it, or read it with another codec"
            )
        )
        self.destination = destination
        self.message_id = message_id
        self.problem = problem
        self.is_rejected = is_rejected


class SelectorError(ForebayError, ValueError):
    """A selector is not JMS SQL-92, or beyond the limits on length, depth and size. Nothing was subscribed."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(f"selector, character {position}: {problem}")
        self.problem = problem
        self.position = position


class TransactionError(ForebayError):
    """A transaction was used out of order: after its end, or with another store."""


class SubscriptionInUse(ForebayError):
    """A durable subscription already has a consumer, and it is not shared. Close that consumer, then call again."""

    def __init__(self, topic: str, name: str, remedy: str = "close that one first") -> None:
        super().__init__(f"subscription {name!r} of topic {topic!r} has a consumer: {remedy}")
        self.topic = topic
        self.name = name


class StateError(ForebayError, RuntimeError):
    """The call came too late: the delivery is settled already, or its consumer was closed.

    Nothing has changed. The arguments are valid, and the same call may have succeeded earlier. First find out what
    settled the delivery.
    """


class AckTooLate(StateError):
    """A delivery was settled after its ack deadline, when it had gone back to be delivered again.

    Nothing has changed: another consumer may have the message by now, as its next attempt. Undo what you did for it, or
    make sure that doing it twice does no harm. `extend` a delivery in time, or give the consumer a longer deadline.
    """

    def __init__(self, destination: str, sequence: int, attempts: int, deadline_seconds: float) -> None:
        super().__init__(
            f"delivery {sequence} of {destination!r} was not settled within its {deadline_seconds:g} s, so it comes "
            "again: extend it in time, or subscribe with a longer ack_deadline_seconds"
        )
        self.destination = destination
        self.sequence = sequence
        # How often the late message was delivered, including this time.
        self.attempts = attempts
        self.deadline_seconds = deadline_seconds


class Empty(ForebayError, queue.Empty):
    """A `get` found no message in time. Nothing was taken; call again, or do something else first."""

    def __init__(self, name: str, waited_seconds: float) -> None:
        super().__init__(f"queue {name!r} had no message within {waited_seconds:g} s: call get again later")
        self.queue = name
        self.waited_seconds = waited_seconds


class MessagesUnreadable(ForebayError, LookupError):
    """A search can't say whether a message exists, because some messages of the queue can't be read.

    The message is none of those that can be read. The log names each one that can't (`message_unreadable`). Open with
    ``on_missing_data_log="report"`` to set them aside, then search again.
    """

    def __init__(self, queue: str, message_id: str, unreadable: int) -> None:
        messages = "1 message" if unreadable == 1 else f"{unreadable} messages"
        super().__init__(
            f"{messages} of queue {queue!r} can't be read and may be {message_id!r}: the log names them; open with "
            'on_missing_data_log="report" to have them set aside'
        )
        self.queue = queue
        self.message_id = message_id
        # Number of messages that could not be read.
        self.unreadable = unreadable


class NotAwaited(ForebayError, TypeError, AttributeError):
    """An `await`, or the `async` of a `for` or `with`, is missing. Nothing was done; write what the text says."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what} is for an event loop, and nothing was done: {remedy}")
        self.what = what
        self.remedy = remedy


class NestedCall(ForebayError):
    """A signal handler, finalizer or trace function called the store from inside a call of the same thread.

    The call would have waited for its own thread for ever, so it was not done. If it had written already, only its
    confirmation is missing. Set an event instead, and call from the thread's own code. `close` of a store or a consumer
    is never refused: it is done when the thread has left the call.
    """

    def __init__(self) -> None:
        super().__init__(
            "a signal handler or finalizer called the store from inside a call of the same thread, which would wait "
            "for itself: set an event there, and call from the thread's own code"
        )


class Closed(ForebayError):
    """The store or consumer was closed, the consumer drains, or the queue or topic was deleted.

    Open it, subscribe, or name it again.
    """

    def __init__(self, what: str, state: str = "closed", remedy: str = "open or subscribe again") -> None:
        super().__init__(f"{what} is {state}: {remedy}")
        self.what = what
