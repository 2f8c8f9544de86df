"""The report: medians over the rounds as Markdown. No path and no name of a machine gets into it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from forebay.dispatch.sizes import KIB, MIB

from .bench_kahadb import LAG
from .bench_plan import (
    DATA_LOGS_LEFT_WANTED,
    DEPTH_RATIO_WANTED,
    KAHADB_REOPEN,
    KAHADB_STUCK,
    PEER_RATIOS,
    REOPEN,
    REOPEN_SECONDS_WANTED,
    STUCK,
    USS_GROWTH_BYTES_WANTED,
    Row,
    depths,
)
from .bench_stopwatch import Facts
from .bench_work import MEMORY_LIMIT_BYTES, Work


@dataclass(frozen=True, slots=True)
class Measured:
    """A row and what each of its passes took."""

    row: Row
    messages: int
    passes: Sequence[Facts]

    def median(self, fact: str) -> float | None:
        """None: the system doesn't tell it, or the row has no such thing."""
        found = [facts[fact] for facts in self.passes if fact in facts]
        return median(found) if found else None

    @property
    def rates(self) -> list[float]:
        return [self.messages / facts["seconds"] for facts in self.passes]

    @property
    def rate(self) -> float:
        return median(self.rates)

    def each(self, fact: str) -> float | None:
        """The median, a message."""
        found = self.median(fact)
        return None if found is None else found / self.messages


def report(about: Sequence[str], messages: int, results: Iterable[Measured]) -> Iterator[str]:
    """The lines. about: machine, software, how it was run. messages: of a W1 pass."""
    by_title = {measured.row.title: measured for measured in results}
    yield "# Benchmarks"
    yield ""
    yield from (f"* {line}" for line in about)
    yield f"* {_others(by_title.values())}"
    yield from _rates(by_title)
    yield from _peers(by_title)
    yield from _depths(messages, by_title)
    yield from _reopened(by_title)
    yield from _stuck(by_title)
    yield from _memory(by_title)
    yield from _floor(by_title)


def _others(results: Iterable[Measured]) -> str:
    shares = [
        facts["others_seconds"] / facts["seconds"]
        for measured in results
        for facts in measured.passes
        if "others_seconds" in facts
    ]
    return (
        f"CPU that other processes used while a pass was timed: {100 * median(shares or [0]):.0f} % of one core in the "
        f"median, {100 * max(shares, default=0):.0f} % in the worst pass"
    )


def _rates(by_title: Mapping[str, Measured]) -> Iterator[str]:
    rated = [measured for measured in by_title.values() if "seconds" in measured.passes[0]]
    if not rated:
        return
    yield from _section(
        "What a message costs",
        'One thread, `sync="never"`, checksums, ledger and locks on; CPU counts the library\'s own threads too. '
        "W1 stores, W2 is the whole path with a standing lag, W5 takes and acknowledges what an earlier open stored "
        "(KahaDB's cursor only reads), W8 is the whole path over a backlog. Written: pages "
        "made dirty, of KahaDB what was passed to write calls; on disk: journal and index. "
        "Both are ours after the close, KahaDB's before it.",
    )
    yield from _heading(
        "", "work", "messages/s", "lowest to highest", "µs", "CPU µs", "wanted", "written B", "on disk B"
    )
    for measured in rated:
        row = measured.row
        wanted = f"≤ {row.cpu_us_wanted:g}" if row.cpu_us_wanted is not None else ""
        yield _line(
            row.group,
            row.title,
            f"{measured.rate:,.0f}",
            f"{min(measured.rates):,.0f} to {max(measured.rates):,.0f}",
            f"{1e6 / measured.rate:.2f}",
            _number(measured.each("cpu_seconds"), 1e6, ".2f"),
            wanted,
            _number(measured.each("written_bytes"), 1, ",.0f"),
            _number(measured.each("disk_bytes"), 1, ",.0f"),
        )


def _peers(by_title: Mapping[str, Measured]) -> Iterator[str]:
    known = [ratio for ratio in PEER_RATIOS if ratio.title in by_title and ratio.over in by_title]
    if not known:
        return
    yield from _section(
        "Against KahaDB",
        "Rate over rate, medians of passes that took turns. KahaDB: the warm second pass of a fresh virtual machine, "
        f"journal never synced, acks {LAG:,} behind its adds. It does not read what it acknowledges, as our path does; "
        "with concurrentStoreAndDispatch it never writes what is acknowledged in time.",
    )
    yield from _heading("work", "over", "ratio", "must", "aim")
    for ratio in known:
        found = by_title[ratio.title].rate / by_title[ratio.over].rate
        yield _line(ratio.title, ratio.over, f"{found:.1f}", f"{ratio.must:g}", f"{ratio.aim:g}")


def _depths(messages: int, by_title: Mapping[str, Measured]) -> Iterator[str]:
    known = [depth for depth in depths(messages) if depth.titles[0] in by_title]
    if not known:
        return
    yield from _section(
        "Depth",
        "The rate over a deep backlog over the rate over a shallow one. Where the limit holds the whole shallow "
        "backlog, that one is served from RAM and the deep one read back; under the smallest limit both are read. "
        "A miss is a delivery that `take` had to wait for, because the eager loader was behind.",
    )
    yield from _heading("work", "body B", "limit MiB", "deep", "shallow", "ratio", "wanted", "misses %")
    for depth in known:
        shallow, deep = by_title[depth.titles[0]], by_title[depth.titles[1]]
        yield _line(
            depth.work,
            f"{depth.body_bytes:,}",
            f"{depth.limit_bytes // MIB}",
            f"{depth.backlogs[1]:,}",
            f"{depth.backlogs[0]:,}",
            f"{deep.rate / shallow.rate:.2f}",
            f"≥ {DEPTH_RATIO_WANTED:g}",
            _number(deep.each("misses"), 100, ".2f"),
        )


def _reopened(by_title: Mapping[str, Measured]) -> Iterator[str]:
    measured, peer = by_title.get(REOPEN), by_title.get(KAHADB_REOPEN)
    if measured is None:
        return
    yield from _section(
        "Opening again",
        f"Seconds that `open` takes over a backlog of {measured.messages:,} messages of 1,024 B, sent one by one: "
        "after a close, after SIGKILL right behind the last send, and after a close with the index deleted.",
    )
    yield from _heading("after", "s", "slowest", "wanted for 1,000,000", "KahaDB s")
    for fact, wanted in REOPEN_SECONDS_WANTED.items():
        yield _line(
            fact.removesuffix("_seconds").replace("_", " "),
            _number(measured.median(fact), 1, ".3f"),
            f"{max(facts[fact] for facts in measured.passes):.3f}",
            f"≤ {wanted:g}",
            _number(peer.median(fact), 1, ".2f") if peer is not None else "",
        )


def _stuck(by_title: Mapping[str, Measured]) -> Iterator[str]:
    known = [
        (side, by_title[title]) for side, title in (("forebay", STUCK), ("KahaDB", KAHADB_STUCK)) if title in by_title
    ]
    if not known:
        return
    yield from _section(
        "One stuck message in each data log",
        "Everything else is acknowledged. What is left when cleanup has nothing more to do.",
    )
    yield from _heading("", "data logs written", "left", "wanted", "journal KiB", "live KiB")
    for side, measured in known:
        yield _line(
            side,
            _number(measured.median("data_logs_written"), 1, ".0f"),
            _number(measured.median("data_logs_left"), 1, ".0f"),
            f"≤ {DATA_LOGS_LEFT_WANTED}" if side == "forebay" else "",
            _number(measured.median("journal_bytes"), 1 / KIB, ",.0f"),
            _number(measured.median("live_bytes"), 1 / KIB, ",.0f"),
        )


def _memory(by_title: Mapping[str, Measured]) -> Iterator[str]:
    measured = by_title.get("memory")
    if measured is None:
        return
    work = measured.row.work
    assert isinstance(work, Work)
    yield from _section(
        "Memory",
        f"A backlog of {work.messages:,} messages of {work.body_bytes:,} B stored and drained under "
        f"{MEMORY_LIMIT_BYTES // MIB} MiB; growth of the process's own memory (USS) since before the open.",
    )
    yield from _heading("", "MiB", "wanted")
    grown = max(facts["uss_growth_bytes"] for facts in measured.passes)
    held = max(facts["held_bytes_max"] for facts in measured.passes)
    yield _line("growth of the process", f"{grown / MIB:.1f}", f"≤ {USS_GROWTH_BYTES_WANTED / MIB:.0f}")
    yield _line("charged to the limit", f"{held / MIB:.1f}", f"≤ {MEMORY_LIMIT_BYTES / MIB:.0f}")


def _floor(by_title: Mapping[str, Measured]) -> Iterator[str]:
    measured = by_title["floor"]
    yield from _section(
        "The floor",
        "What the machine itself took for the parts of it, a message, in the same rounds. It moves when others work.",
    )
    yield from _heading("part", "µs", "lowest to highest")
    for part in measured.passes[0]:
        times = [facts[part] for facts in measured.passes]
        yield _line(part, f"{median(times):.2f}", f"{min(times):.2f} to {max(times):.2f}")


def _section(title: str, text: str) -> Iterator[str]:
    yield from ("", f"## {title}", "", text, "")


def _heading(*names: str) -> Iterator[str]:
    yield _line(*names)
    yield "|" + "---|" * len(names)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float | None, scale: float, form: str) -> str:
    return "" if value is None else format(value * scale, form)
