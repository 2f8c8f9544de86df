"""The command `forebay settings`: print all settings, those of a TOML file, or what becomes of an activemq.xml."""

from __future__ import annotations

import dataclasses
import json
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence

from .activemq_importer import read_activemq, written
from .policy import DestinationPolicy
from .settings import Settings
from .sizes import format_size


def settings_command(arguments: Namespace, print_line: Callable[[str], object]) -> int:
    """Run `forebay settings [FILE]`. Return 0, also where a property of another broker is lost."""
    if arguments.file is not None and not arguments.file.endswith(".toml"):
        return _print_activemq(arguments.file, print_line)
    settings = Settings.from_env() if arguments.file is None else Settings.from_toml(arguments.file)
    defaults = Settings()
    rows = [
        (name, getattr(defaults, name), getattr(settings, name), _effective(settings, name))
        for name in (field.name for field in dataclasses.fields(Settings) if field.init)
        if name != "policies"
    ]
    if arguments.json:
        values = {name: {"default": default, "value": value, "means": means} for name, default, value, means in rows}
        policies = {name: dataclasses.asdict(policy) for name, policy in settings.policies.items()}
        print_line(json.dumps(values | {"policies": policies}))
        return 0
    cells = [("setting", "default", "value", "means")]
    cells += [(name, written(default), written(value), means or "") for name, default, value, means in rows]
    _print_table(cells, print_line)
    for name, policy in settings.policies.items():
        print_line(f"policies[{written(name)}]  DestinationPolicy({', '.join(_chosen(policy))})")
    return 0


def _effective(settings: Settings, name: str) -> str | None:
    """Return the bytes that a size stands for on this machine; None for what is no size."""
    attribute = "max_message_size_bytes" if name == "max_message_bytes" else f"{name}_bytes"
    size_bytes = getattr(settings, attribute, None)
    return None if size_bytes is None else format_size(size_bytes)


def _print_activemq(file: str, print_line: Callable[[str], object]) -> int:
    """Print a line a property, then the settings."""
    fields, findings = read_activemq(file, Settings)
    cells = [("line", "property", "value", "becomes")]
    for line, name, value, becomes, problem, warning in findings:
        fate = f"{becomes}: {warning}" if warning else becomes
        cells.append((str(line), name, value, fate or f"not honoured: {problem}"))
    _print_table(cells, print_line)
    lost = sum(bool(finding.problem) for finding in findings)
    print_line("")
    print_line(f"{len(findings) - lost} of {len(findings)} properties are honoured")
    print_line(f"forebay.open({', '.join(['directory', *_chosen(Settings(**fields))])})")
    return 0


def _print_table(cells: Sequence[tuple[str, str, str, str]], print_line: Callable[[str], object]) -> None:
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    for row in cells:
        print_line("  ".join([*map(str.ljust, row[:3], widths), row[3]]).rstrip())


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
