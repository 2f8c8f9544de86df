"""`make bench`: measure each structure in units of the machine's floor, and compare with the stored baseline.

    python benchmarks/gate.py            exit code 1: something got slower, and its name
    python benchmarks/gate.py --store    make this run the baseline

A baseline is valid only on the machine, with the interpreter and with the library versions that it was made with.
Elsewhere the exit code is 2. A figure is the CPU time of one operation over that of one step of the floor. It is meant
for comparing two versions of the library, not as a figure of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from forebay.benchmarks.works.machine import libraries, machine, software

HERE: Final = Path(__file__).parent
BASELINE: Final = HERE / "baseline.json"
TOLERANCE: Final = 1.3
"""A structure counts as slower above this multiple of its baseline. Runs of one source differ by less."""

Ratios = dict[str, float]
"""Floors that one operation takes, by suite and test: `bench_journal::test_acks`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, compare or store; return the exit code. SystemExit: wrong usage."""
    parser = ArgumentParser(prog="gate.py", description="Each structure beside the floor and its baseline.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="bench_journal and so on (all)")
    parser.add_argument("--store", action="store_true", help="make this run the baseline of its suites")
    arguments = parser.parse_args(argv)
    before = json.loads(BASELINE.read_text(encoding="utf-8")) if BASELINE.exists() else None
    here = {"machine": machine(), "software": software(), "libraries": libraries()}
    if before is not None and not (arguments.store and not arguments.suites) and (other := differences(before, here)):
        print("gate: the baseline was made elsewhere, so this run can't be held against it.", file=sys.stderr)
        print("\n".join(f"  {line}" for line in other), file=sys.stderr)
        print("Make one here: `make bench-baseline`, of all suites, with nothing else running.", file=sys.stderr)
        return 2
    try:
        found = measured(arguments.suites)
    except subprocess.CalledProcessError as failure:
        print(f"{failure.stdout}\ngate: the suites ended with exit code {failure.returncode}", file=sys.stderr)
        return 1
    known: Ratios = before["ratios"] if before is not None else {}
    lines, slower = compared(found, known)
    print("\n".join(lines))
    if arguments.store:
        ratios = {name: ratio for name, ratio in known.items() if arguments.suites} | found
        kept = here | {"ratios": dict(sorted(ratios.items()))}
        BASELINE.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
        print(f"stored as {BASELINE.name}")
        return 0
    if slower:
        print(f"\nslower than {TOLERANCE:g} × the baseline:")
        print("\n".join(f"  {line}" for line in slower))
    return 1 if slower else 0


def differences(before: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Return a line for each condition of the baseline that differs here, such as the interpreter."""
    there, now = _made_with(before), _made_with(here)
    return [
        f"{name}: {there.get(name, 'unknown')} there, {now.get(name, 'none')} here"
        for name in {**now, **there}
        if there.get(name) != now.get(name)
    ]


def _made_with(baseline: Mapping[str, Any]) -> dict[str, str]:
    named: dict[str, str] = {name: baseline[name] for name in ("machine", "software") if name in baseline}
    named.update(baseline.get("libraries", {}))
    return named


def measured(suites: Sequence[str]) -> Ratios:
    """Run the suites; return their figures. CalledProcessError: a suite failed."""
    with TemporaryDirectory() as place:
        written = Path(place) / "measured.json"
        command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [f"--confcutdir={HERE}", "-o", "python_files=bench_*.py", "--benchmark-timer=time.process_time"]
        command += ["--benchmark-quiet", f"--benchmark-json={written}"]
        places = [str(HERE / f"{suite}.py") for suite in suites] or [str(HERE)]
        # A pytest that runs this as one of its tests, in several processes, must not be taken for its own.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        subprocess.run(
            [*command, *places], check=True, stdout=subprocess.PIPE, text=True, cwd=HERE.parent, env=environment
        )
        told = json.loads(written.read_text(encoding="utf-8"))
    return {_name(each["fullname"]): _ratio(each) for each in told["benchmarks"]}


def compared(found: Mapping[str, float], before: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """Return a table of all benchmarks, and a line for each that got slower."""
    return list(_table(found, before)), [
        f"{name}: {ratio / before[name]:.2f} ×"
        for name, ratio in found.items()
        if name in before and ratio > before[name] * TOLERANCE
    ]


def _table(found: Mapping[str, float], before: Mapping[str, float]) -> Iterator[str]:
    width = max(map(len, found), default=0)
    yield f"{'floors an operation':{width}}  {'now':>9}  {'baseline':>9}  change"
    for name, ratio in found.items():
        known = before.get(name)
        against = f"{known:9.3f}  {ratio / known - 1:+6.0%}" if known else f"{'none':>9}"
        yield f"{name:{width}}  {ratio:9.3f}  {against}"


def _name(fullname: str) -> str:
    """Return a test's name without its folder, which differs between machines."""
    path, _, test = fullname.partition("::")
    return f"{Path(path).stem}::{test}"


def _ratio(benchmark: Mapping[str, dict[str, float]]) -> float:
    more = benchmark["extra_info"]
    return benchmark["stats"]["min"] / more["operations"] / more["floor_seconds"]


if __name__ == "__main__":
    sys.exit(main())
