"""A report on the directories of a fleet: what holds disk, which readers lag, what could not be read.

    python fleet_report.py 'DIRECTORY or glob' OUT [--engine local|spark] [--master local[*]]

Writes OUT/pins.parquet, OUT/backlog.parquet, three pictures as SVG and OUT/index.html. It only reads journals and works
beside live brokers. It needs the extra `spark` for Parquet, and matplotlib for the pictures.
"""

from __future__ import annotations

import argparse
import html
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from forebay.pipeline import local
from forebay.pipeline.kernels.fleet import find_stores
from forebay.pipeline.spark import questions as by_spark
from forebay.pipeline.spark.session import session

MIB: Final = 1 << 20
REASONS: Final = {
    "pending_message": ("pending messages", "#d95f02"),
    "ack": ("acks that others need", "#7570b3"),
    "transaction": ("transactions", "#e7298a"),
    "lease": ("leases of readers", "#66a61e"),
    "in_use": ("in use", "#9aa5b1"),
    "none": ("nothing: the next cleanup frees it", "#1b9e77"),
}
ROWS_SHOWN: Final = 15


@dataclass
class Fleet:
    """All answers, as plain rows."""

    sizes: dict[tuple[str, int], int]
    """Bytes of each data log."""
    pins: list[dict[str, Any]]
    backlog: list[dict[str, Any]]
    not_read: list[tuple[str, str]] = field(default_factory=list)
    """(broker, problem) of each part that could not be read."""

    @property
    def brokers(self) -> list[str]:
        return sorted({broker for broker, _ in self.sizes})


def ask(directories: str, engine: str, master: str) -> Fleet:
    """Ask either engine; both give the same rows."""
    sizes = {
        (store.broker, int(path.stem.removeprefix("data-"))): path.stat().st_size
        for store in find_stores(directories)
        for path in (Path(store.root) / "journal").glob("data-*.log")
    }
    if engine == "spark":
        spark = session(master)
        pins = [row.asDict() for row in by_spark.explain_pins(spark, directories, on_damage="report").collect()]
        backlog = [row.asDict() for row in by_spark.backlog(spark, directories, on_damage="report").collect()]
    else:
        pins = [row._asdict() for row in local.explain_pins(directories, on_damage="report")]
        backlog = [row._asdict() for row in local.backlog(directories, on_damage="report")]
    read_pins, read_backlog = ([row for row in rows if row["problem"] is None] for rows in (pins, backlog))
    not_read = sorted({(row["broker"], row["problem"]) for row in (*pins, *backlog) if row["problem"]})
    return Fleet(sizes, read_pins, read_backlog, not_read)


def held_bytes(fleet: Fleet) -> dict[str, dict[str, int]]:
    """Return the bytes of data logs by broker and reason. With several reasons, the first one of the list counts."""
    order = list(REASONS)
    reason_of: dict[tuple[str, int], str] = {}
    for row in fleet.pins:
        place = row["broker"], row["data_log"]
        reason = row["reason"] or "none"
        reason_of[place] = min(reason_of.get(place, reason), reason, key=order.index)
    unread = {broker for broker, _ in fleet.not_read}
    held: dict[str, dict[str, int]] = {broker: defaultdict(int) for broker in fleet.brokers}
    for (broker, data_log), size in fleet.sizes.items():
        if broker not in unread:
            held[broker][reason_of.get((broker, data_log), "none")] += size
    return held


def write_parquet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(list(rows)), path)


# ---------------------------------------------------------------------- pictures


def pictures(fleet: Fleet, out: Path) -> list[Path]:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "forebay", "font.size": 9, "axes.spines.top": False}
    matplotlib.rcParams |= {"axes.spines.right": False, "svg.fonttype": "none", "font.family": "sans-serif"}
    return [_disk(fleet, out / "disk.svg"), _lag(fleet, out / "lag.svg"), _age(fleet, out / "age.svg")]


def _bars(
    path: Path, labels: Sequence[str], parts: Sequence[tuple[str, str, list[float]]], title: str, x: str, form: str
) -> Path:
    """Draw horizontal bars, one for each label, each in parts (name, colour, values)."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8.5, 0.9 + 0.27 * max(len(labels), 3)), layout="constrained")
    begin = [0.0] * len(labels)
    for name, colour, values in parts:
        axes.barh(labels, values, left=begin, color=colour, label=name, height=0.7)
        begin = [before + value for before, value in zip(begin, values, strict=True)]
    for at, (end, label) in enumerate(zip(begin, labels, strict=True)):
        text = "not read" if "(not read)" in label else format(end, form)
        axes.annotate(text, (end, at), xytext=(4, 0), textcoords="offset points", va="center", color="#444444")
    axes.invert_yaxis()
    axes.margins(x=0.1, y=0.01)
    axes.set_xlabel(x)
    axes.set_title(title, loc="left", fontweight="bold")
    if len(parts) > 1:
        figure.legend(loc="outside lower center", ncols=len(parts), frameon=False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


def _disk(fleet: Fleet, path: Path) -> Path:
    held = held_bytes(fleet)
    unread = {broker for broker, _ in fleet.not_read}
    brokers = sorted(held, key=lambda broker: -sum(held[broker].values()))
    used = [reason for reason in REASONS if any(held[broker].get(reason) for broker in brokers)]
    parts = [
        (REASONS[reason][0], REASONS[reason][1], [held[broker].get(reason, 0) / MIB for broker in brokers])
        for reason in used
    ]
    labels = [f"{broker} (not read)" if broker in unread else broker for broker in brokers]
    return _bars(path, labels, parts, "What keeps each broker's journal", "MiB of data logs", ",.1f")


def _age(fleet: Fleet, path: Path) -> Path:
    rows = waiting(fleet)[:ROWS_SHOWN]
    labels = [f"{row['broker']}  {row['destination']}" for row in rows]
    parts = [("hours", "#d95f02", [row["oldest_seconds"] / 3600 for row in rows])]
    return _bars(path, labels, parts, "How long the oldest message of a queue has been waiting", "hours", ",.1f")


def _lag(fleet: Fleet, path: Path) -> Path:
    rows = lagging(fleet)[:ROWS_SHOWN]
    labels = [f"{row['broker']}  {row['destination']} / {row['subscription']}" for row in rows]
    parts = [("messages", "#7570b3", [float(row["messages"]) for row in rows])]
    return _bars(path, labels, parts, "Durable subscriptions that are behind", "messages not acknowledged", ",.0f")


def lagging(fleet: Fleet) -> list[dict[str, Any]]:
    """Return durable subscriptions with a backlog, the longest first."""
    behind = [row for row in fleet.backlog if row["subscription"] is not None and row["messages"]]
    return sorted(behind, key=lambda row: (-row["messages"], row["broker"]))


def waiting(fleet: Fleet) -> list[dict[str, Any]]:
    """Return queues by the age of their oldest message."""
    queues = [row for row in fleet.backlog if row["subscription"] is None and row["messages"] and row["oldest_seconds"]]
    return sorted(queues, key=lambda row: (-row["oldest_seconds"], row["broker"]))


# ---------------------------------------------------------------------- the page

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1d2733; }
table { border-collapse: collapse; margin: 0.5rem 0 2rem; }
td, th { padding: 0.2rem 0.9rem 0.2rem 0; text-align: left; }
th { border-bottom: 1px solid #9aa5b1; } td.n { text-align: right; font-variant-numeric: tabular-nums; }
img { width: 100%; } .bad { color: #b42318; } .facts { font-size: 1.1rem; }
"""


def page(fleet: Fleet, images: Iterable[Path]) -> str:
    total = sum(fleet.sizes.values())
    read = len(fleet.brokers) - len({broker for broker, _ in fleet.not_read})
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Fleet report</title>",
        f"<style>{_STYLE}</style><h1>Fleet report</h1>",
        f"<p class=facts>{len(fleet.brokers)} brokers, {len(fleet.sizes):,} data logs, {total / MIB:,.1f} MiB. "
        f"{read} brokers are read whole.</p>",
    ]
    if fleet.not_read:
        parts.append("<h2 class=bad>Not read: no figure below counts these brokers</h2>")
        parts.append(_table(("broker", "problem"), fleet.not_read))
    disk, lag, age = images
    parts += [
        "<h2>Who pins disk</h2>",
        _image(disk),
        _table(("broker", "holder", "MiB kept", "messages pending there"), pinned(fleet)),
    ]
    parts += ["<h2>Which subscriptions lag</h2>", _image(lag)]
    parts += ["<h2>What waits longest</h2>", _image(age)]
    rows = [
        (row["broker"], row["destination"], row["messages"], row["oldest_seconds"] / 3600)
        for row in waiting(fleet)[:ROWS_SHOWN]
    ]
    parts += [_table(("broker", "queue", "messages", "oldest, hours"), rows), "</html>"]
    return "\n".join(parts)


def pinned(fleet: Fleet) -> list[tuple[str, str, float, int]]:
    """Return holders of sealed data logs with the bytes that they keep, alone or with others."""
    kept: dict[tuple[str, str], int] = defaultdict(int)
    messages: dict[tuple[str, str], int] = defaultdict(int)
    for row in fleet.pins:
        if row["reason"] in (None, "in_use"):
            continue
        holder = row["broker"], row["holder"] or row["reason"]
        kept[holder] += fleet.sizes.get((row["broker"], row["data_log"]), 0)
        messages[holder] += (row["messages"] or 0) if row["reason"] == "pending_message" else 0
    first = sorted(kept, key=lambda holder: (-kept[holder], holder))[:ROWS_SHOWN]
    return [(*holder, kept[holder] / MIB, messages[holder]) for holder in first]


def _image(path: Path) -> str:
    return f'<img src="{path.name}" alt="{path.stem}">'


def _table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"<td class=n>{value:,.1f}</td>"
    if isinstance(value, int):
        return f"<td class=n>{value:,}</td>"
    return f"<td>{html.escape(str(value))}</td>"


def report(directories: str, out: Path, engine: str = "local", master: str = "local[*]") -> Fleet:
    fleet = ask(directories, engine, master)
    out.mkdir(parents=True, exist_ok=True)
    write_parquet(fleet.pins, out / "pins.parquet")
    write_parquet(fleet.backlog, out / "backlog.parquet")
    (out / "index.html").write_text(page(fleet, pictures(fleet, out)), encoding="utf-8")
    return fleet


def main() -> int:
    parser = argparse.ArgumentParser(description="One report over the directories of a fleet.")
    parser.add_argument("directories", help="a directory of brokers, or a glob of several")
    parser.add_argument("out", type=Path)
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    parser.add_argument("--master", default="local[*]")
    arguments = parser.parse_args()
    fleet = report(arguments.directories, arguments.out, arguments.engine, arguments.master)
    for broker, problem in fleet.not_read:
        print(f"not read: {broker}: {problem}")
    print(f"{arguments.out / 'index.html'}: {len(fleet.brokers)} brokers, {len(fleet.sizes):,} data logs")
    return 1 if fleet.not_read else 0


if __name__ == "__main__":
    raise SystemExit(main())
