"""The command `forebay settings`: print what becomes of each property of an activemq.xml."""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from collections.abc import Callable, Iterator

from .activemq_importer import read_activemq, written
from .policy import DestinationPolicy
from .settings import Settings


def settings_command(arguments: Namespace, print_line: Callable[[str], object]) -> int:
    """Run `forebay settings FILE`: print a line a property, then the settings. Return 0, also where some are lost."""
    fields, findings = read_activemq(arguments.file, Settings)
    cells = [("line", "property", "value", "becomes")]
    for line, name, value, becomes, problem in findings:
        cells.append((str(line), name, value, becomes or f"not honoured: {problem}"))
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    for row in cells:
        print_line("  ".join([*map(str.ljust, row[:3], widths), row[3]]))
    lost = sum(bool(finding.problem) for finding in findings)
    print_line("")
    print_line(f"{len(findings) - lost} of {len(findings)} properties are honoured")
    print_line(f"forebay.open({', '.join(['directory', *_chosen(Settings(**fields))])})")
    return 0


def _chosen(chosen: Settings | DestinationPolicy) -> Iterator[str]:
    """Yield the fields that are not at their defaults, as one writes them in a call."""
    for field in dataclasses.fields(chosen):
        value = getattr(chosen, field.name)
        if field.name == "policies":
            calls = [f"{written(name)}: DestinationPolicy({', '.join(_chosen(value[name]))})" for name in value]
            if calls:
                yield f"policies={{{', '.join(calls)}}}"
        elif field.init and value != field.default:
            yield f"{field.name}={written(value)}"
