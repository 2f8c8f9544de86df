"""The report: medians over the rounds as Markdown. No path and no name of a machine gets into it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from forebay.dispatch.config.sizes import KIB, MIB

from .claims import FORMS, HEADERS_MUST, Judged, figure, judged
from .floor import CROSSED, PATH, READ, SENT
from .host import MEMORY_LIMIT_BYTES, PRODUCERS
from .kahadb import LAG
from .measured import Measured
from .plan import (
    BATCHED_PATH,
    BATCHED_PATH_LAGGING,
    DURABLE_SEND,
    DURABLE_SENDS,
    END_TO_END_LIMIT_BYTES,
    KAHADB_REOPEN,
    KAHADB_STUCK,
    REOPEN,
    SINGLE,
    SINGLE_PATH_LAGGING,
    STUCK,
    depths,
    header_works,
    with_headers,
)
from .python_queues import BATCHED, ONE_BY_ONE
from .stopwatch import others_share
from .work import Work

_USS_GROWTH_BYTES_MAX = MEMORY_LIMIT_BYTES * 5 // 4 + 40 * MIB
LEAST_CPU: Final = {f"{SINGLE}; 0 behind": PATH, f"{BATCHED_PATH}; 0 behind": CROSSED[0]}
"""The part of the floor that does the work of a row, by the title of the row."""
_OUTCOMES = {"aim": "aim reached", "held": "held", "lost": "**lost**"}


class LeastHeaders(NamedTuple):
    """The cost of headers in the least program, and of our work without them, in µs of CPU for each message."""

    base: float
    """Our work without headers."""
    without: float
    """The least program without headers."""
    with_them: float
    """The least program with headers."""

    @property
    def added(self) -> float:
        return self.with_them - self.without

    @property
    def ratio(self) -> float:
        """How many times the base a store takes that adds to it only what headers add to the least program."""
        return 1 + self.added / self.base


def report(
    about: Sequence[str], missing: Sequence[str], messages: int, results: Mapping[str, Iterable[Measured]]
) -> Iterator[str]:
    """Yield the lines of the report.

    about: lines about machine, software and run. missing: peers that were not measured. messages: of a W1 pass.
    results: measurements by the name of our build.
    """
    builds = {
        f", {name}" if len(results) > 1 else "": {measured.row.title: measured for measured in found}
        for name, found in results.items()
    }
    yield from (f"* {line}" for line in about)
    yield f"* {_others([measured for by_title in builds.values() for measured in by_title.values()])}"
    yield from (f"* {line}" for line in missing)
    for build, by_title in builds.items():
        yield from _figures(build, judged(messages, by_title), by_title.get("floor"), _least(messages, by_title))
    for build, by_title in builds.items():
        yield from _python_queues(build, by_title)
    for number, (build, by_title) in enumerate(builds.items()):
        is_ours_alone = number > 0  # other programs are already shown beside the first build
        yield from _rates(build, [each for each in by_title.values() if not is_ours_alone or each.row.is_ours])
    for build, by_title in builds.items():
        yield from _durable(build, by_title)
        yield from _misses(build, messages, by_title)
        yield from _reopened(build, by_title)
        yield from _stuck(build, by_title)
        yield from _memory(build, by_title)
        yield from _floor(build, by_title)
        yield from _least_headers(build, messages, by_title)


def _others(results: Iterable[Measured]) -> str:
    shares = [others_share(facts) for measured in results for facts in measured.passes if "others_seconds" in facts]
    return (
        f"CPU that other processes used while a pass was timed: {100 * median(shares or [0]):.0f} % of one core in the "
        f"median, {100 * max(shares, default=0):.0f} % in the worst pass"
    )


def _figures(
    build: str, found: Sequence[Judged], parts: Measured | None, least: Mapping[str, LeastHeaders]
) -> Iterator[str]:
    if not found:
        return
    lost = sum(each.outcome == "lost" for each in found)
    yield from _section(
        f"Figures to reach{build}",
        f"Medians of passes that took turns; {len(found) - lost} of {len(found)} are held. Ratio: our rate over "
        "theirs. Theirs is KahaDB or ActiveMQ's embedded broker, beside the deepest backlog of W8 our own rate over a "
        "tenth of it, in W10 a plain `os.write`, in W11 the same work without headers and its CPU of a message, under "
        "Python the fastest packaged queue that survives a kill. Costs are ours / theirs. The ratio of the least "
        "program in W11: the work without headers and what they add to the least program, over that work.",
    )
    yield from _heading(
        "", "work", "ours", "theirs", "ratio", "must", "aim", "", "CPU µs a message", "peak MiB", "written B a message"
    )
    for each in found:
        claim, ours, theirs = each.claim, each.ours, each.theirs
        bound = "≤" if claim.at_most else "≥"
        compared = claim.their_fact or claim.fact
        their_figure = figure(theirs, compared) if theirs is not None else None
        yield _line(
            claim.group,
            claim.name or claim.title,
            FORMS[claim.fact].said(figure(ours, claim.fact) or 0.0) + _beside_least(ours, claim.fact, parts),
            FORMS[compared].said(their_figure) if their_figure is not None else "",
            _ratio_beside_least(each, least.get(claim.title)),
            f"{bound} {claim.must:g}{claim.form.unit}",
            f"{bound} {claim.aim:g}{claim.form.unit}" if claim.aim is not None else "",
            _OUTCOMES[each.outcome],
            _both(ours, theirs, lambda side: _number(side.each("cpu_seconds"), 1e6, ".1f")),
            _both(ours, theirs, lambda side: _number(side.median("peak_bytes"), 1 / MIB, ",.0f")),
            _both(ours, theirs, lambda side: _number(side.each("written_bytes"), 1, ",.0f")),
        )


def _beside_least(ours: Measured, fact: str, parts: Measured | None) -> str:
    """Return a text about the least program in the same passes or in those of the floor; "" if neither measured it."""
    least = ours.median(f"least_{fact}")
    if fact == "cpu" and parts is not None and ours.row.title in LEAST_CPU:
        micros = parts.median(LEAST_CPU[ours.row.title])
        least = None if micros is None else micros / 1e6
    return "" if least is None else f"; least program {FORMS[fact].said(least)}"


def _ratio_beside_least(each: Judged, least: LeastHeaders | None) -> str:
    if not each.claim.is_relative:
        return ""
    beside = "" if least is None else f"; least program {each.claim.form.said(least.ratio)}"
    return each.claim.form.said(each.value) + beside


def _both(ours: Measured, theirs: Measured | None, said: Callable[[Measured], str]) -> str:
    sides = [ours] if theirs is None or theirs is ours else [ours, theirs]
    texts = [said(side) for side in sides]
    return " / ".join(text or "–" for text in texts) if any(texts) else ""


def _python_queues(build: str, by_title: Mapping[str, Measured]) -> Iterator[str]:
    pairs = [(name, SINGLE_PATH_LAGGING) for name in ONE_BY_ONE] + [(name, BATCHED_PATH_LAGGING) for name in BATCHED]
    known = [(name, title) for name, title in pairs if name in by_title and title in by_title]
    if not known:
        return
    yield from _section(
        f"Python queues{build}",
        f"The packaged ones that survive a kill: store, get, acknowledge over a backlog of {LAG:,}, one by one or in "
        "batches, as each offers it, no sync where it can be left out. Wanted: 8 × each.",
    )
    yield from _heading("queue", "messages/s", "CPU µs", "ours", "messages/s", "ratio")
    for name, title in known:
        theirs, ours = by_title[name], by_title[title]
        yield _line(
            name,
            f"{theirs.rate:,.0f}",
            _number(theirs.each("cpu_seconds"), 1e6, ".1f"),
            title,
            f"{ours.rate:,.0f}",
            FORMS["ratio"].said(ours.rate / theirs.rate),
        )


def _rates(build: str, results: Iterable[Measured]) -> Iterator[str]:
    rated = [measured for measured in results if "seconds" in measured.passes[0]]
    if not rated:
        return
    yield from _section(
        f"What a message costs{build}",
        'Checksums, ledger and locks on, `sync="never"` but in W3; CPU counts the library\'s own threads too. W1 '
        "stores, W2 is the whole path in one thread, W3 stores durably, W5 takes and acknowledges what an earlier "
        "open stored (KahaDB's cursor only reads), W6 is a producer and a consumer at the same time under "
        f"{END_TO_END_LIMIT_BYTES // MIB} MiB on both sides, W7 non-persistent messages above the limit, W8 the whole "
        "path over a backlog (of ActiveMQ a producer and a consumer thread at a time), W11 works of the others with "
        "headers, W12 finds one message by a selector over a header that an earlier search has examined in all "
        "messages, after a reopen: there a message is one that was skipped or examined. KahaDB: the warm "
        "second pass of a fresh virtual machine, journal never synced but in W3, "
        f"acks {LAG:,} behind its adds; it does not read what it acknowledges, as our path does; with "
        "concurrentStoreAndDispatch it never writes what is acknowledged in time. Peak: resident memory of the "
        "process. Written: pages made dirty, of KahaDB what was passed to write calls; on disk: journal and index. "
        "Both are ours after the close, KahaDB's before it.",
    )
    yield from _heading(
        "", "work", "messages/s", "lowest to highest", "µs", "CPU µs", "peak MiB", "written B", "on disk B"
    )
    for measured in rated:
        row = measured.row
        yield _line(
            row.group,
            row.title,
            f"{measured.rate:,.0f}",
            f"{min(measured.rates):,.0f} to {max(measured.rates):,.0f}",
            f"{1e6 / measured.rate:.2f}",
            _number(measured.each("cpu_seconds"), 1e6, ".2f"),
            _number(measured.median("peak_bytes"), 1 / MIB, ",.0f"),
            _number(measured.each("written_bytes"), 1, ",.0f"),
            _number(measured.each("disk_bytes"), 1, ",.0f"),
        )


def _durable(build: str, by_title: Mapping[str, Measured]) -> Iterator[str]:
    known = [by_title[title] for title in (DURABLE_SEND, DURABLE_SENDS) if title in by_title]
    if not known:
        return
    yield from _section(
        f"Durable sends beside bare syncs{build}",
        "A bare sync makes one write of 1 KiB durable: at the end of a growing file, of which the file system also "
        "writes the new size, or over zeros, as data logs are written. W3's figures are in times of the first, which "
        "KahaDB's driver measures too. The least program does the work of the row above it in the same passes, and "
        "keeps none of a store's promises but the sync (benchmarks/works/minimal.py).",
    )
    yield from _heading("work", "µs", "CPU µs", "bare sync, growing, µs", "over zeros, µs", "× growing", "× over zeros")
    for measured in known:
        yield _durable_line(measured.row.title, measured, "")
        if measured.median("least_seconds") is not None:
            yield _durable_line("the same, least program", measured, "least_")


def _durable_line(title: str, measured: Measured, of: str) -> str:
    return _line(
        title,
        _number(measured.each(f"{of}seconds"), 1e6, ".2f"),
        _number(measured.each(f"{of}cpu_seconds"), 1e6, ".2f"),
        _number(measured.median(f"{of}bare_seconds"), 1e6, ".1f"),
        _number(measured.median(f"{of}overwriting_seconds"), 1e6, ".1f"),
        _number(measured.median(f"{of}times_bare"), 1, ".2f"),
        _number(measured.median(f"{of}times_overwriting"), 1, ".2f"),
    )


def _misses(build: str, messages: int, by_title: Mapping[str, Measured]) -> Iterator[str]:
    known = [depth for of_work in depths(messages) for depth in of_work if depth.title in by_title]
    if not known:
        return
    yield from _section(
        f"Depth{build}",
        "The whole path over a backlog that no limit here holds: all of it is read back. A miss is a delivery that "
        "`take` had to wait for, because the eager loader was behind.",
    )
    yield from _heading("work", "body B", "limit MiB", "behind", "messages/s", "misses %")
    for depth in known:
        measured = by_title[depth.title]
        yield _line(
            depth.work,
            f"{depth.body_bytes:,}",
            f"{depth.limit_bytes // MIB}",
            f"{depth.backlog:,}",
            f"{measured.rate:,.0f}",
            _number(measured.each("misses"), 100, ".2f"),
        )


def _reopened(build: str, by_title: Mapping[str, Measured]) -> Iterator[str]:
    measured, peer = by_title.get(REOPEN), by_title.get(KAHADB_REOPEN)
    if measured is None:
        return
    yield from _section(
        f"Opening again{build}",
        f"Seconds that `open` takes over a backlog of {measured.messages:,} messages of 1,024 B, sent one by one: "
        "after a close, after SIGKILL right behind the last send, and after a close with the index deleted.",
    )
    yield from _heading("after", "s", "slowest", "KahaDB s")
    for fact in measured.passes[0]:
        yield _line(
            fact.removesuffix("_seconds").replace("_", " "),
            _number(measured.median(fact), 1, ".3f"),
            f"{max(facts[fact] for facts in measured.passes):.3f}",
            _number(peer.median(fact), 1, ".2f") if peer is not None else "",
        )


def _stuck(build: str, by_title: Mapping[str, Measured]) -> Iterator[str]:
    known = [
        (side, by_title[title]) for side, title in (("forebay", STUCK), ("KahaDB", KAHADB_STUCK)) if title in by_title
    ]
    if not known:
        return
    yield from _section(
        f"One stuck message in each data log{build}",
        "Everything else is acknowledged. What is left when cleanup has nothing more to do.",
    )
    yield from _heading("", "data logs written", "left", "journal KiB", "live KiB")
    for side, measured in known:
        yield _line(
            side,
            _number(measured.median("data_logs_written"), 1, ".0f"),
            _number(measured.median("data_logs_left"), 1, ".0f"),
            _number(measured.median("journal_bytes"), 1 / KIB, ",.0f"),
            _number(measured.median("live_bytes"), 1 / KIB, ",.0f"),
        )


def _memory(build: str, by_title: Mapping[str, Measured]) -> Iterator[str]:
    measured = by_title.get("memory")
    if measured is None:
        return
    work = measured.row.work
    assert isinstance(work, Work)
    yield from _section(
        f"Memory{build}",
        f"A backlog of {work.messages:,} messages of {work.body_bytes:,} B stored and drained under "
        f"{MEMORY_LIMIT_BYTES // MIB} MiB; growth of the process's own memory (USS) since before the open.",
    )
    yield from _heading("", "MiB", "wanted")
    grown = max(facts["uss_growth_bytes"] for facts in measured.passes)
    held = max(facts["held_bytes_max"] for facts in measured.passes)
    yield _line("growth of the process", f"{grown / MIB:.1f}", f"≤ {_USS_GROWTH_BYTES_MAX / MIB:.0f}")
    yield _line("charged to the limit", f"{held / MIB:.1f}", f"≤ {MEMORY_LIMIT_BYTES / MIB:.0f}")


def _floor(build: str, by_title: Mapping[str, Measured]) -> Iterator[str]:
    measured = by_title["floor"]
    yield from _section(
        f"The floor{build}",
        "What the machine itself took for the parts of it, a message, in the same rounds. It moves when others work.",
    )
    yield from _heading("part", "µs", "lowest to highest")
    for part in measured.passes[0]:
        if part != "times_bare":
            times = [facts[part] for facts in measured.passes]
            yield _line(part, f"{median(times):.2f}", f"{min(times):.2f} to {max(times):.2f}")
    ratios = [facts["times_bare"] for facts in measured.passes]
    yield ""
    yield (
        f"With durable sends of {PRODUCERS} tasks the least program reaches {median(ratios):.2f} × bare, "
        f"{min(ratios):.2f} to {max(ratios):.2f}: W3 says what ours reach."
    )


def _least(messages: int, by_title: Mapping[str, Measured]) -> dict[str, LeastHeaders]:
    """Return what headers cost at least in each row of W11 that was measured, by its title."""
    parts = by_title.get("floor")
    found: dict[str, LeastHeaders] = {}
    if parts is None or parts.median(READ[0]) is None:
        return found
    for title, work in header_works(messages).items():
        plain = by_title.get(with_headers(title, "none"))
        base = 1e6 * ((plain.each("cpu_seconds") if plain is not None else None) or 0.0)
        names = {"send": SENT, "read_back": READ}.get(work.kind, CROSSED)
        without, *with_them = [parts.median(name) or 0.0 for name in names]
        for headers, least in zip(HEADERS_MUST, with_them, strict=True):
            if base and with_headers(title, headers) in by_title:
                found[with_headers(title, headers)] = LeastHeaders(base, without, least)
    return found


def _least_headers(build: str, messages: int, by_title: Mapping[str, Measured]) -> Iterator[str]:
    """Yield lines about the cost of headers in the least program, over the same work without headers."""
    found = _least(messages, by_title)
    if not found:
        return
    yield from _section(
        f"What headers cost at least{build}",
        "µs of CPU a message. At least: what four headers add to the least program (benchmarks/works/minimal.py). It "
        "encodes them, puts them under the checksum, decodes them and looks two up; with a selector it decodes the one "
        "that is named, of each message that is sent or read. In batches it makes a Message of each, which is how "
        "headers come into `send_many`. Its own ratio is over its own work without headers. The least ratio is the "
        "base and that, over the base: no store on this base does better. Ratios of ours are medians of the ratios of "
        "neighbouring passes.",
    )
    yield from _heading(
        "work", "base", "headers at least", "headers, ours", "its own ratio", "least ratio", "ratio", "must"
    )
    for each in judged(messages, by_title):
        least = found.get(each.claim.title)
        if least is not None:
            yield _line(
                each.claim.title,
                f"{least.base:.2f}",
                f"{least.added:.2f}",
                f"{(each.value - 1) * least.base:.2f}",
                f"{least.with_them / least.without:.2f} ×",
                f"{least.ratio:.2f} ×",
                f"{each.value:.2f} ×",
                f"≤ {each.claim.must:g} ×",
            )


def _section(title: str, text: str) -> Iterator[str]:
    yield from ("", f"## {title}", "", text, "")


def _heading(*names: str) -> Iterator[str]:
    yield _line(*names)
    yield "|" + "---|" * len(names)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float | None, scale: float, form: str) -> str:
    return "" if value is None else format(value * scale, form)
