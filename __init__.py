"""forebay: memory-managed queue dispatch for message brokers. One memory limit, any backlog.

>>> import forebay
>>> with forebay.open("data", memory_limit="64MiB") as bay:
...     orders = bay.queue("orders")
...     message_id = orders.send(b"1 kg tea", headers={"region": "eu"})
...     with orders.subscribe(selector="region = 'eu'") as consumer:
...         for delivery in consumer.take(10):
...             delivery.ack()
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from forebay.dispatch import codecs
    from forebay.dispatch.config.policy import DestinationPolicy
    from forebay.dispatch.config.settings import Settings, SettingsWarning
    from forebay.dispatch.consumer.consumer import Consumer
    from forebay.dispatch.consumer.consumer_statistics import ConsumerStatistics
    from forebay.dispatch.core.model.delivery import Delivery
    from forebay.dispatch.engine.health import Health
    from forebay.dispatch.engine.resizing import ResizeReport
    from forebay.dispatch.engine.statistics import DestinationStatistics, Statistics, TopicStatistics
    from forebay.dispatch.explain.cause import Cause, DataLogReport, Explanation
    from forebay.dispatch.forebay import Forebay
    from forebay.dispatch.forebay import open_forebay as open
    from forebay.dispatch.host_properties import Properties
    from forebay.dispatch.queue import Queue, TemporaryQueue
    from forebay.dispatch.topic import TemporaryTopic, Topic, TopicPattern, TopicSubscription
    from forebay.dispatch.topics.reader import TopicReader
    from forebay.dispatch.topics.subscriptions.cursors import Landing
    from forebay.dispatch.transactions.transaction import Transaction
    from forebay.dispatch.typed import TypedConsumer, TypedDelivery, TypedQueue, TypedTopic
    from forebay.store.disk.disk import Directory, Disk, File
    from forebay.store.environment.clock import Clock
    from forebay.store.errors import (
        AckTooLate,
        ArgumentError,
        Closed,
        DecodeError,
        Empty,
        ForebayError,
        JournalCorrupt,
        MessagesUnreadable,
        MessageTooLarge,
        NestedCall,
        NotAwaited,
        PropertiesFull,
        SelectorError,
        SettingsError,
        SpillFailed,
        StateError,
        StoreFailed,
        StoreFull,
        StoreLocked,
        SubscriptionInUse,
        TooManyFiles,
        TransactionError,
    )
    from forebay.store.maintenance.data_log_remover import CleanupReport
    from forebay.store.message import Message
    from forebay.store.recovery.recovery import RecoveryReport

__version__ = "0.1.0"

__all__ = [
    "AckTooLate",
    "ArgumentError",
    "Cause",
    "CleanupReport",
    "Clock",
    "Closed",
    "Consumer",
    "ConsumerStatistics",
    "DataLogReport",
    "DecodeError",
    "Delivery",
    "DestinationPolicy",
    "DestinationStatistics",
    "Directory",
    "Disk",
    "Empty",
    "Explanation",
    "File",
    "Forebay",
    "ForebayError",
    "Health",
    "JournalCorrupt",
    "Landing",
    "Message",
    "MessageTooLarge",
    "MessagesUnreadable",
    "NestedCall",
    "NotAwaited",
    "Properties",
    "PropertiesFull",
    "Queue",
    "RecoveryReport",
    "ResizeReport",
    "SelectorError",
    "Settings",
    "SettingsError",
    "SettingsWarning",
    "SpillFailed",
    "StateError",
    "Statistics",
    "StoreFailed",
    "StoreFull",
    "StoreLocked",
    "SubscriptionInUse",
    "TemporaryQueue",
    "TemporaryTopic",
    "TooManyFiles",
    "Topic",
    "TopicPattern",
    "TopicReader",
    "TopicStatistics",
    "TopicSubscription",
    "Transaction",
    "TransactionError",
    "TypedConsumer",
    "TypedDelivery",
    "TypedQueue",
    "TypedTopic",
    "__version__",
    "codecs",
    "open",
]

_FOUND_IN: Final = {
    "dispatch.codecs": ("codecs",),
    "dispatch.config.policy": ("DestinationPolicy",),
    "dispatch.config.settings": ("Settings", "SettingsWarning"),
    "dispatch.consumer.consumer": ("Consumer",),
    "dispatch.consumer.consumer_statistics": ("ConsumerStatistics",),
    "dispatch.host_properties": ("Properties",),
    "dispatch.core.model.delivery": ("Delivery",),
    "dispatch.engine.health": ("Health",),
    "dispatch.engine.resizing": ("ResizeReport",),
    "dispatch.engine.statistics": ("DestinationStatistics", "Statistics", "TopicStatistics"),
    "dispatch.explain.cause": ("Cause", "DataLogReport", "Explanation"),
    "dispatch.forebay": ("Forebay", "open"),
    "dispatch.queue": ("Queue", "TemporaryQueue"),
    "dispatch.topic": ("TemporaryTopic", "Topic", "TopicPattern", "TopicSubscription"),
    "dispatch.topics.subscriptions.cursors": ("Landing",),
    "dispatch.topics.reader": ("TopicReader",),
    "dispatch.transactions.transaction": ("Transaction",),
    "dispatch.typed": ("TypedConsumer", "TypedDelivery", "TypedQueue", "TypedTopic"),
    "store.environment.clock": ("Clock",),
    "store.disk.disk": ("Directory", "Disk", "File"),
    "store.errors": (
        "AckTooLate",
        "ArgumentError",
        "Closed",
        "DecodeError",
        "Empty",
        "ForebayError",
        "JournalCorrupt",
        "MessagesUnreadable",
        "MessageTooLarge",
        "NestedCall",
        "NotAwaited",
        "PropertiesFull",
        "SelectorError",
        "SettingsError",
        "SpillFailed",
        "StateError",
        "StoreFailed",
        "StoreFull",
        "StoreLocked",
        "SubscriptionInUse",
        "TooManyFiles",
        "TransactionError",
    ),
    "store.maintenance.data_log_remover": ("CleanupReport",),
    "store.message": ("Message",),
    "store.recovery.recovery": ("RecoveryReport",),
}
"""Each module with the names that come from it. It must agree with the imports above, which type checkers read."""
_OWN_NAMES: Final = {"open": "open_forebay", "codecs": ""}
"""The name in its module, if it differs from the name here; "": the module itself."""
_MODULE_OF: Final = {name: module for module, names in _FOUND_IN.items() for name in names}

if not TYPE_CHECKING:  # type checkers would take any name for one of this module

    def __getattr__(name: str) -> object:
        """Import a name when it is first used; from then on it is a plain attribute."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        module, own_name = import_module(f"{__name__}.{_MODULE_OF[name]}"), _OWN_NAMES.get(name, name)
        found = globals()[name] = getattr(module, own_name) if own_name else module
        return found


def __dir__() -> list[str]:
    """Return the public names; the packages below are not among them."""
    return list(__all__)
