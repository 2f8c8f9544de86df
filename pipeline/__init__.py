"""The data pipeline: questions over the directories of many brokers, answered by Spark or by one process.

It reads journals only, writes nothing there, and works beside live brokers.
Nothing here is imported by `import forebay`, and Spark by nothing before it
is needed. `forebay.pipeline.local` has the same questions without Spark.
"""

from .errors import NotRead, SparkMissing, StoreNotRead
from .session import session
from .spark import backlog, check, explain_pins, facts, rebuild_index, register

__all__ = [
    "NotRead",
    "SparkMissing",
    "StoreNotRead",
    "backlog",
    "check",
    "explain_pins",
    "facts",
    "rebuild_index",
    "register",
    "session",
]
