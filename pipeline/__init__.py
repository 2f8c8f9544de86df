"""The data pipeline: questions over the directories of many brokers, answered by Spark or by one process.

It reads journals only, writes nothing there, and works beside live brokers.
Nothing here is imported by `import forebay`, and Spark by nothing before it
is needed.
"""

from .session import SparkMissing, session

__all__ = ["SparkMissing", "session"]
