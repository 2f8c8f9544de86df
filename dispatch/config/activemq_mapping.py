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


class PropertyMapping(NamedTuple):
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
    PropertyMapping("directory", note=DIRECTORY),
    PropertyMapping("archiveDataLogs", "archive_data_logs", truth),
    PropertyMapping("directoryArchive", "archive_directory"),
    PropertyMapping("checkpointInterval", "checkpoint_interval_seconds", milliseconds),
    PropertyMapping("cleanupInterval", "cleanup_interval_seconds", milliseconds),
)
_AMQ_STORE: Final = (
    *_BOTH_STORES,
    PropertyMapping("syncOnWrite", "sync", either("always", "never")),
    PropertyMapping("syncOnTransaction", note="sync says it for every confirmed call"),
    PropertyMapping("maxFileLength", "max_file_length", size),
    PropertyMapping("useNIO", "use_vectored_io", truth),
    PropertyMapping("persistentIndex", "persistent_index", truth),
    PropertyMapping("maxCheckpointMessageAddSize", "index_transaction_adds", count),
    PropertyMapping("indexPageSize", "index_page_size", size),
    PropertyMapping("indexCacheSize", "index_cache_size", size),
    PropertyMapping("indexBinSize", note=_HASH_INDEX),
    PropertyMapping("indexMaxBinSize", note=_HASH_INDEX),
    PropertyMapping("indexKeySize", note=_HASH_INDEX),
    PropertyMapping("indexLoadFactor", note=_HASH_INDEX),
    PropertyMapping("maxReferenceFileLength", note="the index has no reference files"),
    PropertyMapping("recoverReferenceStore", note="a damaged index is always rebuilt from the journal"),
    PropertyMapping("forceRecoverReferenceStore", note="delete kr-store/state to have it once"),
    PropertyMapping("disableLocking", note=_LOCK),
    PropertyMapping("failIfJournalIsLocked", note=_LOCK),
    PropertyMapping("journalThreadPriority", note="callers write the journal themselves"),
)
_KAHADB: Final = (
    *_BOTH_STORES,
    PropertyMapping("journalDiskSyncStrategy", "sync", one_of(always="always", periodic="interval", never="never")),
    PropertyMapping("enableJournalDiskSyncs", "sync", either("always", "never")),
    PropertyMapping("journalDiskSyncInterval", "sync_interval_seconds", milliseconds),
    PropertyMapping("journalMaxFileLength", "max_file_length", size),
    PropertyMapping("ignoreMissingJournalfiles", "on_missing_data_log", either("report", "refuse")),
    PropertyMapping("checkForCorruptJournalFiles", "verify_on_open", truth),
    PropertyMapping("indexDirectory", note="the index lies in the store's directory"),
    PropertyMapping(
        "indexCacheSize", "index_cache_size", pages, note=f"pages of {format_size(KAHADB_PAGE_BYTES)} there"
    ),
    PropertyMapping("indexWriteBatchSize", note=_PAGES),
    PropertyMapping("enableIndexWriteAsync", note=_PAGES),
    PropertyMapping("enableIndexDiskSyncs", note=_PAGES),
    PropertyMapping("enableIndexRecoveryFile", note=_PAGES),
    PropertyMapping("enableIndexPageCaching", note=_PAGES),
    PropertyMapping("useIndexLFRUEviction", note=_PAGES),
    PropertyMapping("indexLFUEvictionFactor", note=_PAGES),
    PropertyMapping("checksumJournalFiles", convert=only("true", "every record has a checksum, always")),
    PropertyMapping("journalMaxWriteBatchSize", note="slices of at most 256 KiB, joined by whoever sends them"),
    PropertyMapping("preallocationScope", note="a data log takes its space when it begins"),
    PropertyMapping("preallocationStrategy", note="a data log takes its space when it begins"),
    PropertyMapping("archiveCorruptedIndex", note="a damaged index is rebuilt, never kept"),
    PropertyMapping("forceRecoverIndex", note="delete kr-store/state to have it once"),
    PropertyMapping("deleteAllMessages", note="forebay deletes nothing at open"),
    PropertyMapping("cleanupOnStop", note="cleanup runs by its interval and by Forebay.cleanup"),
    PropertyMapping("enableAckCompaction", note="there is no such switch"),
    PropertyMapping("compactAcksAfterNoGC", note="there is no such switch"),
    PropertyMapping("compactAcksIgnoresStoreGrowth", note="there is no such switch"),
    PropertyMapping("concurrentStoreAndDispatchQueues", convert=only("false", _CONFIRMED)),
    PropertyMapping("concurrentStoreAndDispatchTopics", convert=only("false", _CONFIRMED)),
    PropertyMapping("maxAsyncJobs", note="callers write the journal themselves"),
    PropertyMapping("maxFailoverProducersToTrack", note=_RAM_OF_IDS),
    PropertyMapping("purgeRecoveredXATransactionStrategy", note="prepared branches are the host's to settle"),
    PropertyMapping("enableSubscriptionStatistics", note="statistics are always on"),
    PropertyMapping("databaseLockedWaitDelay", note=_LOCK),
    PropertyMapping("failIfDatabaseIsLocked", note=_LOCK),
    PropertyMapping("lockKeepAlivePeriod", note=_LOCK),
    PropertyMapping("useLock", note=_LOCK),
)

PROPERTIES: Final[dict[str, tuple[PropertyMapping, ...]]] = {
    "broker": (
        PropertyMapping("brokerName", "broker_name"),
        PropertyMapping("dataDirectory", note=DIRECTORY),
        PropertyMapping("persistent", convert=only("true", "persistent messages are journaled, always")),
    ),
    "amqPersistenceAdapter": _AMQ_STORE,
    "kahaDB": _KAHADB,
    "mKahaDB": (PropertyMapping("directory", note=DIRECTORY),),
    "filteredKahaDB": tuple(
        PropertyMapping(name, note="one journal holds all destinations")
        for name in ("queue", "topic", "perDestination")
    ),
    "systemUsage": (),
    "memoryUsage": (
        PropertyMapping("limit", "memory_limit", size),
        PropertyMapping(
            "percentOfJvmHeap",
            "memory_limit",
            percent,
            warning="of the RAM of the machine or container here, of the Java heap there: see that it leaves the rest "
            "of the process enough",
        ),
        PropertyMapping("percentUsageMinDelta", note="usage is counted in bytes"),
    ),
    "storeUsage": (
        PropertyMapping("limit", "store_limit", size),
        PropertyMapping(
            "percentLimit", "store_limit", percent, note="of the free disk here, of the whole file system there"
        ),
    ),
    "tempUsage": (
        PropertyMapping("limit", "temp_limit", size),
        PropertyMapping(
            "percentLimit", "temp_limit", percent, note="of the free disk here, of the whole file system there"
        ),
    ),
}
"""Properties that become a field of Settings, by element."""

TOPIC_FIELDS: Final = frozenset(("subscriber_max_messages", "eviction", "eviction_key"))
"""Fields of DestinationPolicy that no queue reads."""

POLICY_PROPERTIES: Final[dict[str, tuple[PropertyMapping, ...]]] = {
    "systemUsage": (
        PropertyMapping("sendFailIfNoSpace", "when_full", either("fail", "block")),
        PropertyMapping("sendFailIfNoSpaceAfterTimeout", "block_timeout_seconds", milliseconds),
    ),
    "kahaDB": (PropertyMapping("failoverProducersAuditDepth", "duplicate_window", number, note=_IDS),),
    "policyEntry": (
        PropertyMapping("queuePrefetch", "prefetch", number, kind=QUEUE),
        PropertyMapping("topicPrefetch", "prefetch", number, kind=TOPIC),
        PropertyMapping(
            "durableTopicPrefetch", note="prefetch is one for all subscriptions: Topic.subscribe takes another"
        ),
        PropertyMapping("queueBrowserPrefetch", note="browsing takes no prefetch"),
        PropertyMapping("sendFailIfNoSpace", "when_full", either("fail", "block")),
        PropertyMapping("sendFailIfNoSpaceAfterTimeout", "block_timeout_seconds", milliseconds),
        PropertyMapping("producerFlowControl", convert=only("true", _NO_WAIT), note="at max_messages and max_bytes"),
        PropertyMapping(
            "memoryLimit",
            "memory_share",
            size,
            warning="it bounds the RAM of all destinations of the pattern together, and never a send",
        ),
        PropertyMapping("cursorMemoryHighWaterMark", note=_FOUND_BY_ITSELF),
        PropertyMapping("maxPageSize", note=_FOUND_BY_ITSELF),
        PropertyMapping("lazyDispatch", convert=only("true", "a consumer never gets more than it asks for")),
        PropertyMapping("prioritizedMessages", convert=only("true", "queues deliver by priority, always")),
        PropertyMapping("strictOrderDispatch", convert=only("false", "whoever takes first is served first")),
        PropertyMapping("expireMessagesPeriod", "expiry_sweep_seconds", period),
        PropertyMapping("enableAudit", convert=truth, note="of maxAuditDepth"),
        PropertyMapping("maxAuditDepth", "duplicate_window", number, note=_IDS, switch=("enableAudit", True)),
        PropertyMapping("maxProducersToAudit", note=_RAM_OF_IDS),
    ),
    "sharedDeadLetterStrategy": (
        PropertyMapping("deadLetterQueue", "dead_letter_queue", dead_letter_queue),
        PropertyMapping("processExpired", "expired_to_dead_letter", truth),
        PropertyMapping("processNonPersistent", convert=only("true", _EVERY_KIND)),
    ),
    "individualDeadLetterStrategy": (
        PropertyMapping("queuePrefix", "dead_letter_queue", dead_letter_prefix, kind=QUEUE),
        PropertyMapping("topicPrefix", "dead_letter_queue", dead_letter_prefix, kind=TOPIC),
        PropertyMapping("queueSuffix", note="dead_letter_queue takes one: write it there"),
        PropertyMapping("topicSuffix", note="dead_letter_queue takes one: write it there"),
        PropertyMapping("useQueueForQueueMessages", convert=only("true", "dead letters go to queues")),
        PropertyMapping("useQueueForTopicMessages", convert=only("true", "dead letters go to queues")),
        PropertyMapping("destinationPerDurableSubscriber", convert=only("false", "a header names the subscription")),
        PropertyMapping("processExpired", "expired_to_dead_letter", truth),
        PropertyMapping("processNonPersistent", convert=only("true", _EVERY_KIND)),
    ),
    "constantPendingMessageLimitStrategy": (
        PropertyMapping("limit", "subscriber_max_messages", waiting_messages, note="and an eighth more", kind=TOPIC),
    ),
    "oldestMessageEvictionStrategy": (
        PropertyMapping("", "eviction", always("oldest"), kind=TOPIC),
        PropertyMapping("evictExpiredMessagesHighWatermark", note=_EXPIRED),
    ),
    "oldestMessageWithLowestPriorityEvictionStrategy": (
        PropertyMapping("", "eviction", always("lowest_priority"), kind=TOPIC),
        PropertyMapping("evictExpiredMessagesHighWatermark", note=_EXPIRED),
    ),
    "uniquePropertyMessageEvictionStrategy": (
        PropertyMapping("", "eviction", always("latest_per_key"), kind=TOPIC),
        PropertyMapping("propertyName", "eviction_key", kind=TOPIC),
        PropertyMapping("evictExpiredMessagesHighWatermark", note=_EXPIRED),
    ),
    "redeliveryPolicy": (
        PropertyMapping("maximumRedeliveries", "max_attempts", attempts),
        PropertyMapping("initialRedeliveryDelay", "redelivery_delay_seconds", milliseconds),
        PropertyMapping("redeliveryDelay", "redelivery_delay_seconds", milliseconds),
        PropertyMapping("backOffMultiplier", "redelivery_backoff", factor, switch=("useExponentialBackOff", False)),
        PropertyMapping("useExponentialBackOff", convert=truth, note="of backOffMultiplier"),
        PropertyMapping("maximumRedeliveryDelay", note="a delay grows to an hour at most"),
        PropertyMapping("useCollisionAvoidance", convert=only("false", "delays are what they say")),
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


def rows() -> Iterator[tuple[str, PropertyMapping, bool]]:
    """Yield (element, row, whether the row belongs to a policy) for the whole table."""
    for is_policy, table in ((False, PROPERTIES), (True, POLICY_PROPERTIES)):
        for element, found in table.items():
            for row in found:
                yield element, row, is_policy
