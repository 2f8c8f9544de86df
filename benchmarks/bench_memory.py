"""Hit ratio and throughput against memory, as Markdown on standard output and a picture.

    python benchmarks/bench_memory.py --svg benchmarks/memory.svg > memory.md       about three minutes
    python benchmarks/bench_memory.py --only traffics --limits 8MiB,64MiB --part 0.1
    python benchmarks/bench_memory.py --only peers --kahadb FOLDER                  beside KahaDB

Each pass has a process and a directory of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from forebay.benchmarks.memory.kahadb import PREFIX, KahaDB, KahaFailed
from forebay.benchmarks.memory.lru import lru_hit_ratio
from forebay.benchmarks.memory.passes import Facts, curve_cost, depth, overflow, play, resizes
from forebay.benchmarks.memory.picture import draw
from forebay.benchmarks.memory.report import Point, report
from forebay.benchmarks.memory.traffic import TRAFFICS
from forebay.dispatch.config.settings import MEMORY_LIMIT_BYTES_MIN
from forebay.dispatch.config.sizes import MIB, parse_size
from forebay.store.errors import SettingsError

LIMITS: Final = "8MiB,16MiB,32MiB,64MiB,128MiB,256MiB,512MiB"
PARTS: Final = ("traffics", "peers", "resize", "curve")
PEER_MESSAGES: Final = 200_000
RESIZE_LIMITS: Final = (32 * MIB, 256 * MIB)
CURVE_LIMIT_BYTES: Final = 64 * MIB
STRETCHES: Final = 60
STRETCH_MESSAGES: Final = 4_096


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit code. SystemExit: wrong usage."""
    arguments = _parser().parse_args(argv)
    try:
        lines = list(_measure_all(arguments))
    except (SettingsError, KahaFailed, subprocess.CalledProcessError) as failure:
        print(f"bench_memory: {failure}", file=sys.stderr)
        return 1
    for line in lines:
        print(line)
    return 0


def _measure_all(arguments: Namespace) -> Iterator[str]:
    """Yield the lines of the report. Draws the picture too, if one is wanted."""
    wanted = arguments.only or [part for part in PARTS if part != "peers" or arguments.kahadb is not None]
    limits = [parse_size("--limits", size, minimum=MEMORY_LIMIT_BYTES_MIN) for size in arguments.limits.split(",")]
    part = arguments.part
    points = {}
    if "traffics" in wanted:
        for at, traffic in enumerate(TRAFFICS):
            points[traffic] = [
                Point(limit, _measured(arguments, "play", at, limit, part), lru_hit_ratio(traffic, limit, part))
                for limit in limits
            ]
    peers = _peers(arguments, limits) if "peers" in wanted else {}
    resize = (
        _measured(arguments, "resizes", list(RESIZE_LIMITS), max(int(10 * part), 1)) if "resize" in wanted else None
    )
    stretches = max(int(part * STRETCHES), 2)
    curves = [
        (batch, _measured(arguments, "curve_cost", CURVE_LIMIT_BYTES, batch, stretches, STRETCH_MESSAGES))
        for batch in ((1, 256) if "curve" in wanted else ())
    ]
    if arguments.svg is not None and points:
        draw(points, arguments.svg)
    yield from report(_about(arguments), points, peers, resize, curves)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="bench_memory.py", description="Hit ratio and throughput against memory, as Markdown.")
    parser.add_argument(
        "--only", nargs="*", choices=PARTS, metavar="PART", help=f"{', '.join(PARTS)} (all that can be)"
    )
    parser.add_argument("--limits", default=LIMITS, metavar="SIZES", help="(%(default)s)")
    parser.add_argument("--part", type=float, default=1.0, metavar="X", help="of the traffic (%(default)s)")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the traffics as well")
    parser.add_argument("--kahadb", type=Path, metavar="FOLDER", help="one that holds a run.sh for KahaDB")
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(tempfile.gettempdir()),
        metavar="DIR",
        help="where to work, on the disk to measure (the system's temporary directory)",
    )
    return parser


def _peers(arguments: Namespace, limits: Sequence[int]) -> dict[str, list[tuple[int, Facts]]]:
    messages = int(arguments.part * PEER_MESSAGES)
    ours: list[tuple[int, Facts]] = []
    theirs: list[tuple[int, Facts]] = []
    with ExitStack() as stack:
        peer = stack.enter_context(KahaDB(arguments.kahadb, arguments.dir)) if arguments.kahadb is not None else None
        for limit in limits:
            over = _measured(arguments, "overflow", limit, messages)
            ours.append((limit, over | _measured(arguments, "depth", limit, messages, messages // 4)))
            if peer is not None:
                over = peer.rates(limit, "W7", messages)
                theirs.append((limit, over | peer.rates(limit, "W8", messages, messages // 4)))
    return {"forebay": ours, "KahaDB": theirs}


def _about(arguments: Namespace) -> list[str]:
    command = "python benchmarks/bench_memory.py"
    if arguments.only:
        command += f" --only {' '.join(arguments.only)}"
    if arguments.part != 1.0:
        command += f" --part {arguments.part}"
    if arguments.kahadb is not None:
        command += " --kahadb FOLDER"
    return [f'{datetime.now(UTC):%Y-%m-%d}, `{command}`: one pass each, `sync="never"`, each in a fresh process']


# ---------------------------------------------------------------------- a pass in a process of its own


def _measured(arguments: Namespace, name: str, *fields: object) -> Facts:
    print(f"{name} {fields}", file=sys.stderr)
    with TemporaryDirectory(dir=arguments.dir, prefix=PREFIX) as place:
        os.sync()  # otherwise the kernel would still write data of the previous pass
        # -P: a forebay in the current directory must not be taken for the one that is measured.
        command = [sys.executable, "-P", "-m", "forebay.benchmarks.bench_memory", "--pass"]
        ended = subprocess.run([*command, json.dumps([name, place, *fields])], stdout=subprocess.PIPE, check=True)
    facts: Facts = json.loads(ended.stdout)
    return facts


def _pass(text: str) -> Facts:
    name, place, *fields = json.loads(text)
    directory = Path(place)
    if name == "play":
        at, limit_bytes, part = fields
        return play(TRAFFICS[at], directory, limit_bytes, part)
    kinds: dict[str, Callable[..., Facts]] = {
        "overflow": overflow,
        "depth": depth,
        "resizes": resizes,
        "curve_cost": curve_cost,
    }
    return kinds[name](directory, *fields)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--pass"]:
        print(json.dumps(_pass(sys.argv[2])))
    else:
        sys.exit(main())
