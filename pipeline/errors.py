"""The errors of the pipeline, each a ForebayError."""

from __future__ import annotations

from ..store.errors import ForebayError


class SparkMissing(ForebayError):
    """Spark, or the Java for it, is missing. The text tells what to install; `--engine local` needs neither."""


class NotRead(ForebayError):
    """A part of a journal could not be read, so the answer would be incomplete.

    `on_damage="report"` continues, and reports each such part in a row of its own.
    """

    def __init__(self, broker: str, data_log: int, offset: int, problem: str) -> None:
        super().__init__(
            f"{broker}: data-{data_log}.log at offset {offset}: {problem}. Nothing was changed; `forebay verify` names "
            'all such places, and on_damage="report" reads the rest and names what it did not read'
        )
        self.broker = broker
        self.data_log = data_log
        self.offset = offset
        self.problem = problem

    def __reduce__(self) -> tuple[type[NotRead], tuple[str, int, int, str]]:
        return NotRead, (self.broker, self.data_log, self.offset, self.problem)


class StoreNotRead(ForebayError):
    """One broker's journal could not be read, so there is no answer for it. The text names the place."""


class SparkFailed(ForebayError):
    """The query failed. The text is its cause. Rows that were printed before are not the whole answer."""
