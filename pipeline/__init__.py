"""The data pipeline: answers questions about the directories of many brokers, with Spark or in one process.

It only reads journals, writes nothing there, and works beside live brokers. The exception is `load`: it writes into
import/, and the store itself takes the messages over. `import forebay` imports nothing of this package, and Spark is
imported only when it is needed. `forebay.pipeline.local` has the same questions without Spark.
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
