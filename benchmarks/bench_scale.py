"""`make bench-scale`: print as Markdown how costs grow with depth, consumers and other dimensions.

python benchmarks/bench_scale.py                    all curves, some minutes
python benchmarks/bench_scale.py depth selectors
python benchmarks/bench_scale.py --deep --write     with ten million messages, into SCALE.md and scale.svg
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from forebay.benchmarks import drawing
from forebay.benchmarks.scale.measuring import measure
from forebay.benchmarks.scale.picture import picture
from forebay.benchmarks.scale.point import Curve, curves
from forebay.benchmarks.scale.report import Measured, report
from forebay.benchmarks.works.machine import file_system, machine, software
from forebay.benchmarks.works.process import PassFailed
from forebay.dispatch.config.sizes import GIB
from forebay.store.errors import SettingsError

PLACE: Final = Path(__file__).parent


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit code. SystemExit: wrong usage."""
    names = [curve.name for curve in curves(deep=False)]
    parser = ArgumentParser(prog="bench_scale.py", description="What grows with what, as Markdown.")
    parser.add_argument("curves", nargs="*", metavar="CURVE", help=f"{', '.join(names)} (all)")
    parser.add_argument("--deep", action="store_true", help="with ten million messages in the queue")
    parser.add_argument("--write", action="store_true", help="into SCALE.md and scale.svg beside this file")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR", help="where to work")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.curves) - set(names):
        parser.error(f"there is no {' and no '.join(sorted(unknown))}: choose among {', '.join(names)}")
    if arguments.write:
        try:
            drawing.require("--write")
        except SettingsError as missing:
            parser.error(str(missing))
    chosen = [curve for curve in curves(deep=arguments.deep) if not arguments.curves or curve.name in arguments.curves]
    needed_bytes = max(point.disk_bytes for curve in chosen for point in curve.points)
    if shutil.disk_usage(arguments.dir).free < needed_bytes:
        parser.error(f"the directory to work in needs {needed_bytes / GIB:.1f} GiB free: choose another with --dir")
    try:
        measured = [_measured(curve, arguments.dir) for curve in chosen]
    except PassFailed as failure:
        print(f"bench_scale: {failure}", file=sys.stderr)
        return 1
    lines = list(report(_about(arguments, measured), measured))
    print("\n".join(lines))
    if arguments.write:
        (PLACE / "SCALE.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (PLACE / "scale.svg").write_text(picture(measured), encoding="utf-8")
    return 0


def _measured(curve: Curve, directory: Path) -> Measured:
    facts = []
    for point in curve.points:
        print(f"{point.value:,} {curve.axis}", file=sys.stderr)
        facts.append(measure(point, directory))
    return Measured(curve, facts)


def _about(arguments: Namespace, measured: Sequence[Measured]) -> list[str]:
    """Return lines about the machine and the run, without paths of this machine."""
    facts = [facts for each in measured for facts in each.facts]
    others = sum(each["others_seconds"] for each in facts) / sum(each["seconds"] for each in facts)
    command = ["python benchmarks/bench_scale.py", *arguments.curves]
    command += [f"--{name}" for name in ("deep", "write") if getattr(arguments, name)]
    return [
        f"{datetime.now(UTC):%Y-%m-%d}, `{' '.join(command)}`: each point in a fresh process, memory limit 64 MiB, "
        'one thread, `sync="never"`, bodies of 1 KiB where nothing else is said',
        f"{machine()}, {file_system(arguments.dir)}",
        software(),
        f"CPU that other processes used meanwhile: {others:.0%} of one core",
    ]


if __name__ == "__main__":
    sys.exit(main())
