"""The table of brokers as Markdown: what each confirms, its rates, and its features that forebay lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from forebay.benchmarks.works.host import BATCH_MESSAGES, MEMORY_LIMIT_BYTES
from forebay.benchmarks.works.stopwatch import Facts
from forebay.dispatch.config.sizes import MIB

from .choices import CHOICES
from .passes import Sizes

_HEADING = (
    "broker",
    "a confirmed message is",
    "by",
    "store /s",
    "store, take, ack /s",
    f"the same in {BATCH_MESSAGES} /s",
    "backlog",
    "fill /s",
    "drain /s",
    "RSS MiB, empty",
    "with backlog",
    "PSS MiB",
)
_HAS = {
    "RabbitMQ": "a server for many processes and languages over AMQP, MQTT and STOMP; exchanges and routing keys; "
    "quorum queues replicated by Raft; users and virtual hosts; a management page",
    "Redis Streams": "a server for many processes; a stream that can be read again from any entry; replicas and "
    "fail-over; other data structures beside it. All of the backlog is in RAM",
    "PostgreSQL": "a server for many processes; queue and data in one transaction; any query over what waits; "
    "streaming replication and point-in-time recovery",
    "NATS JetStream": "a server for many processes and languages; subjects with wildcards; streams that keep and "
    "replay; clusters replicated by Raft, leaf nodes; key-value and object stores",
}
_NOT_HAD = "ActiveMQ Artemis is left out: Debian has no package of it. (`artemis` there is a genome browser.)"


def table(
    about: Sequence[str],
    missing: Sequence[str],
    versions: str,
    sizes: Sizes,
    found: Mapping[str, Mapping[str, Sequence[Facts]]],
) -> Iterator[str]:
    """Yield the lines of the report. found: by the title of a choice, the passes of each of its rows."""
    yield from ("## Brokers", "")
    yield from (f"* {line}" for line in about)
    yield f"* {versions}"
    yield from (f"* {line}" for line in (*missing, _NOT_HAD))
    yield from (
        "",
        "Bodies of 1 KiB through one connection on loopback, one caller that waits for each answer. Each server is a "
        "child of the benchmark with its distribution's defaults but for what the table says. A phase ends after "
        f"{sizes.messages:,} messages or {sizes.seconds:g} s, filling and draining after {sizes.backlog_messages:,} or "
        f"{sizes.backlog_seconds:g} s each: the column says how many it came to. RSS and PSS are those of all "
        "processes of the server, of forebay that of the whole program with its interpreter under a memory limit of "
        f"{MEMORY_LIMIT_BYTES // MIB} MiB.",
        "",
        "forebay is a library in the caller's process: no hop, no copy through a socket, no second scheduler. That is "
        "most of the difference wherever nobody waits for the disk, and no merit of its journal. A server is what you "
        "need as soon as a second process wants the queue.",
        "",
        _line(*_HEADING),
        "|" + "---|" * len(_HEADING),
    )
    for choice in CHOICES:
        for row, passes in found.get(choice.title, {}).items():
            yield _line(row, choice.confirmed, choice.setting, *_figures(passes))
    yield from ("", "What each has that forebay has not:", "")
    for name, words in _HAS.items():
        if any(title.startswith(name) for title in found):
            yield f"* **{name}**: {words}."


def _figures(passes: Sequence[Facts]) -> Iterator[str]:
    facts = {name: median(each[name] for each in passes) for name in passes[0]}
    yield from (f"{facts[name]:,.0f}" for name in ("store", "singles", "batches"))
    backlog, drained = facts["backlog_messages"], facts["drained_messages"]
    yield f"{backlog:,.0f}" + (f", {drained:,.0f} drained" if drained < backlog else "")
    yield from (f"{facts[name]:,.0f}" for name in ("fill", "drain"))
    yield from (f"{facts[name] / MIB:,.0f}" for name in ("empty_rss_bytes", "rss_bytes", "pss_bytes"))


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
