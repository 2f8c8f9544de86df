"""The data pipeline: questions over the directories of many brokers, answered by Spark or by one process.

It reads journals only, writes nothing there, and works beside live brokers; `load` alone brings a store something, and
that in import/, for the store itself to take over. Nothing here is imported by `import forebay`, and Spark by nothing
before it is needed. `forebay.pipeline.local` has the same questions without Spark.
"""

from .bulk.archive import archive, restore
from .bulk.tune import recommend_limits
from .errors import NotRead, SparkMissing, StoreNotRead
from .loading import load
from .spark.questions import backlog, check, explain_pins, facts, rebuild_index, register
from .spark.session import session

__all__ = [
    "NotRead",
    "SparkMissing",
    "StoreNotRead",
    "archive",
    "backlog",
    "check",
    "explain_pins",
    "facts",
    "load",
    "rebuild_index",
    "recommend_limits",
    "register",
    "restore",
    "session",
]
