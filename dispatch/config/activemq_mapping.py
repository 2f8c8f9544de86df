"""The table of ActiveMQ properties: which of them becomes which setting, and why the others become none.

A row that names a field works from the day on which Settings or DestinationPolicy has a field of that name; until then
the property is reported as not honoured yet. Where two properties of a file become the same field, the earlier row
decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from .sizes import GIB, KIB, MIB, format_size

Convert = Callable[[str], object]
"""Turns the property's text into the field's value. ValueError says what is wrong with the text."""

QUEUE: Final = "queue"
TOPIC: Final = "topic"

AUDIT_DEPTH: Final = 2048
"""Message ids of a producer that ActiveMQ remembers if a configuration enables the audit without a number."""

KAHADB_PAGE_BYTES: Final = 4 * KIB
"""Bytes of one page of KahaDB's index, unless a Java system property changes it. indexCacheSize counts pages."""

_SUFFIX_BYTES: Final = {"": 1, "b": 1, "k": KIB, "kb": KIB, "m": MIB, "mb": MIB, "g": GIB, "gb": GIB}
_SIZE: Final = re.compile(r"([0-9]{1,18}) *([kmg]?b?)", re.IGNORECASE | re.ASCII)
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)


class Row(NamedTuple):
    """One property of one element.

    Where `field` is empty, `note` says why the property becomes nothing; else `note` adds what a reader should know.
    """

    property: str
    field: str = ""
    convert: Convert = str
    note: str = ""
    warning: str = ""
    """How the field differs from the property, if that may surprise a user."""
    kind: str = ""
    """QUEUE or TOPIC: the kind of entry in which the property has an effect, in ActiveMQ and here. "": both kinds."""
    switch: tuple[str, bool] | None = None
    """The property that switches this one on, and whether it is on by default."""


# ------------------------------------------------------------------ values


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError('not a size such as "64 mb"')
    return int(match[1]) * _SUFFIX_BYTES[match[2].lower()]


def size(text: str) -> str:
    """Return a size that was given in bytes, kb, mb or gb, which ActiveMQ counts in 1,024s."""
    return format_size(_bytes(text))


def pages(text: str) -> str:
    """Return the bytes of a number of KahaDB's pages."""
    return format_size(number(text) * KAHADB_PAGE_BYTES)


def number(text: str) -> int:
    """Return a whole number, which may be negative."""
    if _NUMBER.fullmatch(text) is None:
        raise ValueError("not a whole number")
    return int(text)


def count(text: str) -> int:
    """Return a count; ActiveMQ documents some counts as sizes ("4kb")."""
    return _bytes(text)


def milliseconds(text: str) -> float:
    """Return the seconds of a number of milliseconds."""
    return number(text) / 1000


def period(text: str) -> float:
    """Return the seconds of a period. ValueError for 0, which switches the work off in ActiveMQ."""
    if number(text) <= 0:
        raise ValueError("expired messages are always swept: give it a longer period")
    return milliseconds(text)


def percent(text: str) -> str:
    """Return a share of the disk or the RAM, such as "80%"."""
    return f"{number(text)}%"


def factor(text: str) -> float:
    """Return a number that may have a fraction."""
    try:
        return float(text)
    except ValueError:
        raise ValueError("not a number") from None


def truth(text: str) -> bool:
    """Return the bool that "true" or "false" stands for, in any case."""
    if text.lower() not in ("true", "false"):
        raise ValueError('neither "true" nor "false"')
    return text.lower() == "true"


def either(if_true: object, if_false: object) -> Convert:
    """Return a converter that chooses one of two values by "true" or "false"."""
    return lambda text: if_true if truth(text) else if_false


def one_of(**choices: object) -> Convert:
    """Return a converter that chooses a value by its name, given in any case."""

    def convert(text: str) -> object:
        if text.lower() not in choices:
            raise ValueError(f"none of {', '.join(choices)}")
        return choices[text.lower()]

    return convert


def only(text_honoured: str, why_not: str) -> Convert:
    """Return a converter that accepts one text, because forebay always does that, and refuses every other one."""

    def convert(text: str) -> object:
        if text.lower() != text_honoured:
            raise ValueError(why_not)
        return None

    return convert


def attempts(text: str) -> int | None:
    """Return max_attempts for a maximumRedeliveries, which leaves out the first delivery; below 0 there is no limit."""
    return number(text) + 1 if number(text) >= 0 else None


def waiting_messages(text: str) -> int | None:
    """Return subscriber_max_messages for a limit, which is none below 0. ValueError for 0."""
    if number(text) == 0:
        raise ValueError("a subscriber that holds nothing may have one message wait: give it 1")
    return number(text) if number(text) > 0 else None


def always(value: object) -> Convert:
    """Return a converter for a property that is set by the presence of an element."""
    return lambda _: value


def dead_letter_prefix(text: str) -> str:
    """Return the template of dead-letter queues whose names begin with the text."""
    return text + "{name}"


def dead_letter_queue(text: str) -> str:
    """Return the name of a queue, given plainly or as "queue://name". ValueError for a bean or a topic."""
    if text.startswith(("#", "topic://")):
        raise ValueError("dead letters go to a queue, by its name")
    return text.removeprefix("queue://")


# ------------------------------------------------------------------ the table

DIRECTORY: Final = "give it to forebay.open: its first argument is the directory"
_HASH_INDEX: Final = "of a hash index; forebay's is a B-tree"
_PAGES: Final = "how ActiveMQ's own index is written"
_FOUND_BY_ITSELF: Final = "found from measured rates"
_CONFIRMED: Final = "a confirmed message is in the journal, always"
_LOCK: Final = "the directory has one owner by flock; see lock_wait_seconds"
_NO_WAIT: Final = "sends never wait for memory; max_messages and max_bytes limit a backlog"
_EVERY_KIND: Final = "non-persistent messages are given up as the others are"
_IDS: Final = "for messages that name their producer"
_RAM_OF_IDS: Final = "ids of all producers share a sixteenth of memory_limit, the oldest go first"
_EXPIRED: Final = "nobody is handed an expired message, and expiry_sweep_seconds says when it goes"

_BOTH_STORES: Final = (
    Row("directory", note=DIRECTORY),
    Row("archiveDataLogs", "archive_data_logs", truth),
    Row("directoryArchive", "archive_directory"),
    Row("checkpointInterval", "checkpoint_interval_seconds", milliseconds),
    Row("cleanupInterval", "cleanup_interval_seconds", milliseconds),
)
_AMQ_STORE: Final = (
    *_BOTH_STORES,
    Row("syncOnWrite", "sync", either("always", "never")),
    Row("syncOnTransaction", note="sync says it for every confirmed call"),
    Row("maxFileLength", "max_file_length", size),
    Row("useNIO", "use_vectored_io", truth),
    Row("persistentIndex", "persistent_index", truth),
    Row("maxCheckpointMessageAddSize", "index_transaction_adds", count),
    Row("indexPageSize", "index_page_size", size),
    Row("indexCacheSize", "index_cache_size", size),
    Row("indexBinSize", note=_HASH_INDEX),
    Row("indexMaxBinSize", note=_HASH_INDEX),
    Row("indexKeySize", note=_HASH_INDEX),
    Row("indexLoadFactor", note=_HASH_INDEX),
    Row("maxReferenceFileLength", note="the index has no reference files"),
    Row("recoverReferenceStore", note="a damaged index is always rebuilt from the journal"),
    Row("forceRecoverReferenceStore", note="delete kr-store/state to have it once"),
    Row("disableLocking", note=_LOCK),
    Row("failIfJournalIsLocked", note=_LOCK),
    Row("journalThreadPriority", note="callers write the journal themselves"),
)
_KAHADB: Final = (
    *_BOTH_STORES,
    Row("journalDiskSyncStrategy", "sync", one_of(always="always", periodic="interval", never="never")),
    Row("enableJournalDiskSyncs", "sync", either("always", "never")),
    Row("journalDiskSyncInterval", "sync_interval_seconds", milliseconds),
    Row("journalMaxFileLength", "max_file_length", size),
    Row("ignoreMissingJournalfiles", "on_missing_data_log", either("report", "refuse")),
    Row("checkForCorruptJournalFiles", "verify_on_open", truth),
    Row("indexDirectory", note="the index lies in the store's directory"),
    Row("indexCacheSize", "index_cache_size", pages, note=f"pages of {format_size(KAHADB_PAGE_BYTES)} there"),
    Row("indexWriteBatchSize", note=_PAGES),
    Row("enableIndexWriteAsync", note=_PAGES),
    Row("enableIndexDiskSyncs", note=_PAGES),
    Row("enableIndexRecoveryFile", note=_PAGES),
    Row("enableIndexPageCaching", note=_PAGES),
    Row("useIndexLFRUEviction", note=_PAGES),
    Row("indexLFUEvictionFactor", note=_PAGES),
    Row("checksumJournalFiles", convert=only("true", "every record has a checksum, always")),
    Row("journalMaxWriteBatchSize", note="slices of at most 256 KiB, joined by whoever sends them"),
    Row("preallocationScope", note="a data log takes its space when it begins"),
    Row("preallocationStrategy", note="a data log takes its space when it begins"),
    Row("archiveCorruptedIndex", note="a damaged index is rebuilt, never kept"),
    Row("forceRecoverIndex", note="delete kr-store/state to have it once"),
    Row("deleteAllMessages", note="forebay deletes nothing at open"),
    Row("cleanupOnStop", note="cleanup runs by its interval and by Forebay.cleanup"),
    Row("enableAckCompaction", note="there is no such switch"),
    Row("compactAcksAfterNoGC", note="there is no such switch"),
    Row("compactAcksIgnoresStoreGrowth", note="there is no such switch"),
    Row("concurrentStoreAndDispatchQueues", convert=only("false", _CONFIRMED)),
    Row("concurrentStoreAndDispatchTopics", convert=only("false", _CONFIRMED)),
    Row("maxAsyncJobs", note="callers write the journal themselves"),
    Row("maxFailoverProducersToTrack", note=_RAM_OF_IDS),
    Row("purgeRecoveredXATransactionStrategy", note="prepared branches are the host's to settle"),
    Row("enableSubscriptionStatistics", note="statistics are always on"),
    Row("databaseLockedWaitDelay", note=_LOCK),
    Row("failIfDatabaseIsLocked", note=_LOCK),
    Row("lockKeepAlivePeriod", note=_LOCK),
    Row("useLock", note=_LOCK),
)

PROPERTIES: Final[dict[str, tuple[Row, ...]]] = {
    "broker": (
        Row("brokerName", "broker_name"),
        Row("dataDirectory", note=DIRECTORY),
        Row("persistent", convert=only("true", "persistent messages are journaled, always")),
    ),
    "amqPersistenceAdapter": _AMQ_STORE,
    "kahaDB": _KAHADB,
    "mKahaDB": (Row("directory", note=DIRECTORY),),
    "filteredKahaDB": tuple(
        Row(name, note="one journal holds all destinations") for name in ("queue", "topic", "perDestination")
    ),
    "systemUsage": (),
    "memoryUsage": (
        Row("limit", "memory_limit", size),
        Row(
            "percentOfJvmHeap",
            "memory_limit",
            percent,
            warning="of the RAM of the machine or container here, of the Java heap there: see that it leaves the rest "
            "of the process enough",
        ),
        Row("percentUsageMinDelta", note="usage is counted in bytes"),
    ),
    "storeUsage": (
        Row("limit", "store_limit", size),
        Row("percentLimit", "store_limit", percent, note="of the free disk here, of the whole file system there"),
    ),
    "tempUsage": (
        Row("limit", "temp_limit", size),
        Row("percentLimit", "temp_limit", percent, note="of the free disk here, of the whole file system there"),
    ),
}
"""Properties that become a field of Settings, by element."""

TOPIC_FIELDS: Final = frozenset(("subscriber_max_messages", "eviction", "eviction_key"))
"""Fields of DestinationPolicy that no queue reads."""

POLICY_PROPERTIES: Final[dict[str, tuple[Row, ...]]] = {
    "systemUsage": (
        Row("sendFailIfNoSpace", "when_full", either("fail", "block")),
        Row("sendFailIfNoSpaceAfterTimeout", "block_timeout_seconds", milliseconds),
    ),
    "kahaDB": (Row("failoverProducersAuditDepth", "duplicate_window", number, note=_IDS),),
    "policyEntry": (
        Row("queuePrefetch", "prefetch", number, kind=QUEUE),
        Row("topicPrefetch", "prefetch", number, kind=TOPIC),
        Row("durableTopicPrefetch", note="prefetch is one for all subscriptions: Topic.subscribe takes another"),
        Row("queueBrowserPrefetch", note="browsing takes no prefetch"),
        Row("sendFailIfNoSpace", "when_full", either("fail", "block")),
        Row("sendFailIfNoSpaceAfterTimeout", "block_timeout_seconds", milliseconds),
        Row("producerFlowControl", convert=only("true", _NO_WAIT), note="at max_messages and max_bytes"),
        Row(
            "memoryLimit",
            "memory_share",
            size,
            warning="it bounds the RAM of all destinations of the pattern together, and never a send",
        ),
        Row("cursorMemoryHighWaterMark", note=_FOUND_BY_ITSELF),
        Row("maxPageSize", note=_FOUND_BY_ITSELF),
        Row("lazyDispatch", convert=only("true", "a consumer never gets more than it asks for")),
        Row("prioritizedMessages", convert=only("true", "queues deliver by priority, always")),
        Row("strictOrderDispatch", convert=only("false", "whoever takes first is served first")),
        Row("expireMessagesPeriod", "expiry_sweep_seconds", period),
        Row("enableAudit", convert=truth, note="of maxAuditDepth"),
        Row("maxAuditDepth", "duplicate_window", number, note=_IDS, switch=("enableAudit", True)),
        Row("maxProducersToAudit", note=_RAM_OF_IDS),
    ),
    "sharedDeadLetterStrategy": (
        Row("deadLetterQueue", "dead_letter_queue", dead_letter_queue),
        Row("processExpired", "expired_to_dead_letter", truth),
        Row("processNonPersistent", convert=only("true", _EVERY_KIND)),
    ),
    "individualDeadLetterStrategy": (
        Row("queuePrefix", "dead_letter_queue", dead_letter_prefix, kind=QUEUE),
        Row("topicPrefix", "dead_letter_queue", dead_letter_prefix, kind=TOPIC),
        Row("queueSuffix", note="dead_letter_queue takes one: write it there"),
        Row("topicSuffix", note="dead_letter_queue takes one: write it there"),
        Row("useQueueForQueueMessages", convert=only("true", "dead letters go to queues")),
        Row("useQueueForTopicMessages", convert=only("true", "dead letters go to queues")),
        Row("destinationPerDurableSubscriber", convert=only("false", "a header names the subscription")),
        Row("processExpired", "expired_to_dead_letter", truth),
        Row("processNonPersistent", convert=only("true", _EVERY_KIND)),
    ),
    "constantPendingMessageLimitStrategy": (
        Row("limit", "subscriber_max_messages", waiting_messages, note="and an eighth more", kind=TOPIC),
    ),
    "oldestMessageEvictionStrategy": (
        Row("", "eviction", always("oldest"), kind=TOPIC),
        Row("evictExpiredMessagesHighWatermark", note=_EXPIRED),
    ),
    "oldestMessageWithLowestPriorityEvictionStrategy": (
        Row("", "eviction", always("lowest_priority"), kind=TOPIC),
        Row("evictExpiredMessagesHighWatermark", note=_EXPIRED),
    ),
    "uniquePropertyMessageEvictionStrategy": (
        Row("", "eviction", always("latest_per_key"), kind=TOPIC),
        Row("propertyName", "eviction_key", kind=TOPIC),
        Row("evictExpiredMessagesHighWatermark", note=_EXPIRED),
    ),
    "redeliveryPolicy": (
        Row("maximumRedeliveries", "max_attempts", attempts),
        Row("initialRedeliveryDelay", "redelivery_delay_seconds", milliseconds),
        Row("redeliveryDelay", "redelivery_delay_seconds", milliseconds),
        Row("backOffMultiplier", "redelivery_backoff", factor, switch=("useExponentialBackOff", False)),
        Row("useExponentialBackOff", convert=truth, note="of backOffMultiplier"),
        Row("maximumRedeliveryDelay", note="a delay grows to an hour at most"),
        Row("useCollisionAvoidance", convert=only("false", "delays are what they say")),
    ),
}
"""Properties that become a field of DestinationPolicy, by element."""

_SHARED: Final = ("deadLetterQueue", "ActiveMQ.DLQ")
_QUEUE_PREFIX, _TOPIC_PREFIX = ("queuePrefix", "ActiveMQ.DLQ.Queue."), ("topicPrefix", "ActiveMQ.DLQ.Topic.")

IMPLIED: Final = {
    "sharedDeadLetterStrategy": {QUEUE: _SHARED, TOPIC: _SHARED},
    "individualDeadLetterStrategy": {QUEUE: _QUEUE_PREFIX, TOPIC: _TOPIC_PREFIX},
    "oldestMessageEvictionStrategy": {QUEUE: ("", ""), TOPIC: ("", "")},
    "oldestMessageWithLowestPriorityEvictionStrategy": {QUEUE: ("", ""), TOPIC: ("", "")},
    "uniquePropertyMessageEvictionStrategy": {QUEUE: ("", ""), TOPIC: ("", "")},
}
"""The property that the presence of an element sets, by the kind of its entry, and the default value."""

IMPLIED_BY_SWITCH: Final = {"policyEntry": ("enableAudit", "maxAuditDepth", str(AUDIT_DEPTH))}
"""The property that an element sets if its switch is true, and the default value."""

SAME_ELEMENTS: Final = {
    "amqPersistenceAdapterFactory": "amqPersistenceAdapter",
    "journaledJDBC": "jdbcPersistenceAdapter",
}
"""Elements that ActiveMQ knows by two names: the other name, and the one in the tables."""

WRAPPERS: Final = frozenset(
    """
    persistenceAdapter persistenceFactory filteredPersistenceAdapters destinationPolicy policyMap policyEntries
    defaultEntry deadLetterStrategy plugins redeliveryPlugin redeliveryPolicyMap redeliveryPolicyEntries
    pendingMessageLimitStrategy messageEvictionStrategy
    """.split()
)
"""Elements without properties that hold others. memoryUsage and its like have properties as well."""

UNKNOWN_PROPERTY: Final = "no setting corresponds to it"
UNKNOWN_ELEMENTS: Final = {
    "transportConnectors": "forebay is embedded and has no network",
    "networkConnectors": "forebay is embedded and has no network",
    "managementContext": "there is no JMX: Forebay.statistics tells",
    "jobSchedulerStore": "there is no scheduler",
    "shutdownHooks": "the host closes the store",
    "import": "another file, which is not read",
    "bean": "a Spring bean, which is not made",
    "prefetchRatePendingMessageLimitStrategy": "a limit that follows prefetch; give subscriber_max_messages",
    "pendingQueuePolicy": "there is one way of loading messages: see TargetLists",
    "pendingSubscriberPolicy": "there is one way of loading messages: see TargetLists",
    "pendingDurableSubscriberPolicy": "there is one way of loading messages: see TargetLists",
    "dispatchPolicy": "whoever takes first is served first",
    "slowConsumerStrategy": "a slow consumer holds what it took and nothing else",
    "jdbcPersistenceAdapter": "another kind of store",
    "kahaPersistenceAdapter": "another kind of store",
    "levelDB": "another kind of store",
    "replicatedLevelDB": "another kind of store",
    "memoryPersistenceAdapter": "another kind of store",
    "journalPersistenceAdapter": "another kind of store",
    "journalPersistenceAdapterFactory": "another kind of store",
}
"""Why an element without rows becomes nothing, with all that is in it."""


def rows() -> Iterator[tuple[str, Row, bool]]:
    """Yield (element, row, whether the row belongs to a policy) for the whole table."""
    for is_policy, table in ((False, PROPERTIES), (True, POLICY_PROPERTIES)):
        for element, found in table.items():
            for row in found:
                yield element, row, is_policy
