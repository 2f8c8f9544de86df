"""The figures to reach, and the verdict of a run on each: held, aim reached, or lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from forebay.dispatch.config.sizes import MIB

from .measured import Measured
from .plan import (
    BATCHED_PATH,
    BATCHED_PATH_LAGGING,
    BROKER_DRAIN,
    BROKER_FILL,
    CONTENDED,
    DRAIN,
    DURABLE_SEND,
    DURABLE_SENDS,
    END_TO_END_WAYS,
    FILL,
    FIND,
    KAHADB_ADD,
    KAHADB_CONCURRENT,
    KAHADB_CURSOR,
    KAHADB_DURABLE_ADD,
    KAHADB_DURABLE_ADDS,
    KAHADB_PATH,
    KAHADB_REOPEN,
    KAHADB_STUCK,
    OVERFLOWN,
    READ_BACK,
    READ_BACK_SLICES,
    REOPEN,
    SEND,
    SEND_MANY,
    SINGLE,
    SINGLE_PATH_LAGGING,
    STUCK,
    broker_at_depth,
    broker_end_to_end,
    depths,
    end_to_end,
    header_works,
    with_headers,
)
from .python_queues import BATCHED, ONE_BY_ONE
from .work import Headers

HEADERS_MUST: Final[dict[Headers, float]] = {"read": 1.35, "selected": 1.5}
"""How many times the CPU of the same work without headers W11 may take."""
Outcome = Literal["aim", "held", "lost"]


@dataclass(frozen=True, slots=True)
class Form:
    """How a fact is printed: multiplied by a scale, with a number of digits and a unit."""

    scale: float
    digits: str
    unit: str

    def said(self, value: float) -> str:
        return f"{value * self.scale:{self.digits}}{self.unit}"


_SECONDS: Final = Form(1, ".3g", " s")
_MIB: Final = Form(1 / MIB, ".0f", " MiB")
FORMS: Final = {
    "ratio": Form(1, ",.2f", " ×"),
    "rate": Form(1, ",.0f", "/s"),
    "times_bare": Form(1, ".2f", " × bare"),
    "clean_seconds": _SECONDS,
    "kill_seconds": _SECONDS,
    "index_lost_seconds": _SECONDS,
    "uss_growth_bytes": _MIB,
    "peak_bytes": _MIB,
    "data_logs_left": Form(1, ".0f", " left"),
    "share": Form(1, ".2f", " of alone"),
    "bare_share": Form(1, ".4f", " of alone"),
    "cpu": Form(1e6, ".1f", " µs"),
    "cost": Form(1e6, ".2f", " µs"),
    "find_seconds": _SECONDS,
    "read_bytes": _MIB,
    "index_bytes": Form(1, ".1f", " B"),
}


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim about one figure of a row. Rates and costs are judged by their ratio to that of another row."""

    group: str
    title: str
    over: str
    """The row to compare with; "": the figure is judged by itself."""
    must: float
    aim: float | None
    fact: str = "rate"
    their_fact: str = ""
    """The fact of the other row; "": the same fact."""
    at_most: bool = False
    name: str = ""
    """Title of the claim; "": that of the row."""

    @property
    def form(self) -> Form:
        """The form of the judged figure, of must and of aim."""
        return FORMS["ratio" if self.is_relative else self.fact]

    @property
    def is_relative(self) -> bool:
        return self.fact in ("rate", "cost")


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with its measurement. value: the judged ratio, or our figure itself in its unit."""

    claim: Claim
    ours: Measured
    theirs: Measured | None
    value: float

    @property
    def outcome(self) -> Outcome:
        if self.of_must < 1:
            return "lost"
        return "aim" if self.aim_of_must is not None and self.of_must >= self.aim_of_must else "held"

    @property
    def of_must(self) -> float:
        """1 if the value is just enough, and more if it is better."""
        return self.claim.must / max(self.value, 1e-9) if self.claim.at_most else self.value / self.claim.must

    @property
    def aim_of_must(self) -> float | None:
        """The aim on the scale of `of_must`; None: the claim has no aim."""
        claim = self.claim
        if claim.aim is None:
            return None
        return claim.must / claim.aim if claim.at_most else claim.aim / claim.must


def judged(messages: int, by_title: Mapping[str, Measured]) -> list[Judged]:
    """Return all claims whose sides were measured; claims about our figure alone have one side."""
    found: list[Judged] = []
    for claim in _claims(messages, by_title):
        ours, theirs = by_title.get(claim.title), by_title.get(claim.over)
        if ours is None or (claim.is_relative and theirs is None):
            continue
        value = figure(ours, claim.fact)
        if value is None:
            continue
        if claim.is_relative:
            assert theirs is not None
            value = ratio(ours, theirs, claim.fact)
        found.append(Judged(claim, ours, theirs, value * claim.form.scale))
    return found


def ratio(ours: Measured, theirs: Measured, fact: str) -> float:
    """Return how many times the figure of the other row ours is.

    Rows that took turns with each other: the median of the ratios of neighbouring passes, which other work of the
    machine slowed alike. Other rows: the ratio of their medians.
    """
    if ours.row.beside and ours.row.beside == theirs.row.beside:
        return median(
            (figure(ours.alone(at), fact) or 0.0) / (figure(theirs.alone(at), fact) or float("inf"))
            for at in range(min(len(ours.passes), len(theirs.passes)))
        )
    return (figure(ours, fact) or 0.0) / (figure(theirs, fact) or float("inf"))


def figure(measured: Measured, fact: str) -> float | None:
    """Return a row's rate, the cost of a message, or the median of a fact of its passes."""
    if fact == "rate":
        return measured.rate
    if fact in ("cpu", "cost"):
        return measured.each("cpu_seconds")
    if fact == "index_bytes":
        return measured.each(fact)
    return measured.median(fact)


def _claims(messages: int, by_title: Mapping[str, Measured]) -> Iterator[Claim]:
    yield Claim("W1", SEND, KAHADB_ADD, 4, 7)
    yield Claim("W1", SEND_MANY, KAHADB_ADD, 10, 20)
    yield Claim("W2", SINGLE_PATH_LAGGING, KAHADB_PATH, 3, 4.5)
    yield Claim("W2", BATCHED_PATH_LAGGING, KAHADB_CONCURRENT, 3, 6)
    yield Claim("W3", DURABLE_SEND, KAHADB_DURABLE_ADD, 0.9, 0.97, "times_bare")
    yield Claim("W3", DURABLE_SENDS, KAHADB_DURABLE_ADDS, 10, 20, "times_bare")
    for fact, must, aim in (("clean_seconds", 0.12, 0.05), ("kill_seconds", 0.5, 0.3), ("index_lost_seconds", 2, 1)):
        after = fact.removesuffix("_seconds").replace("_", " ")
        yield Claim("W4", REOPEN, KAHADB_REOPEN, must, aim, fact, at_most=True, name=f"opening, {after}")
    yield Claim("W5", READ_BACK, KAHADB_CURSOR, 1.2, 2)
    yield Claim("W5", READ_BACK_SLICES, KAHADB_CURSOR, 1.2, 2)
    batched, in_batches, singly = END_TO_END_WAYS
    for way, persistent, must, aim in (
        (batched, True, 5, 10),
        (in_batches, True, 10, 25),
        (singly, True, 3, 6),
        (batched, False, 3, 5),
        (singly, False, 1.2, 2),
    ):
        yield Claim("W6", end_to_end(way, persistent), broker_end_to_end(persistent), must, aim)
    yield Claim("W7", FILL, BROKER_FILL, 2.5, 5)
    yield Claim("W7", DRAIN, BROKER_DRAIN, 5, 10)
    yield Claim("W7", OVERFLOWN, BROKER_DRAIN, 105, None, "uss_growth_bytes", "peak_bytes", at_most=True)
    for beside_peer, shallow, deep in depths(messages):
        yield Claim("W8", beside_peer.title, broker_at_depth(messages), 3, 6)
        yield Claim("W8", deep.title, shallow.title, 0.95, 1.0)
    yield Claim("W9", STUCK, KAHADB_STUCK, 3, 2, "data_logs_left", at_most=True, name="one stuck in each data log")
    yield Claim("W10", CONTENDED, CONTENDED, 0.25, 0.45, "share", "bare_share")
    for work in header_works(messages):
        plain = with_headers(work, "none")
        yield Claim("W11", with_headers(work, "read"), plain, HEADERS_MUST["read"], 1.2, "cost", at_most=True)
        yield Claim("W11", with_headers(work, "selected"), plain, HEADERS_MUST["selected"], 1.2, "cost", at_most=True)
    yield Claim("W12", FIND, "", 0.1, 0.02, "find_seconds", at_most=True, name=f"{FIND}, time")
    yield Claim("W12", FIND, "", 10, None, "read_bytes", at_most=True, name=f"{FIND}, read")
    yield Claim("CPU", f"{SINGLE}; 0 behind", "", 5.5, None, "cpu", at_most=True)
    yield Claim("CPU", f"{BATCHED_PATH}; 0 behind", "", 3, None, "cpu", at_most=True)
    yield Claim("index", SEND_MANY, "", 8, None, "index_bytes", at_most=True, name="index on disk, a message")
    for title, names in ((SINGLE_PATH_LAGGING, ONE_BY_ONE), (BATCHED_PATH_LAGGING, BATCHED)):
        there = [by_title[name] for name in names if name in by_title]
        if there:
            yield Claim("Python", title, max(there, key=lambda each: each.rate).row.title, 8, None)
