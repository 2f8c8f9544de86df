"""The command `forebay settings`, which prints all settings, those of a TOML file, or those that an activemq.xml
becomes.
"""

from __future__ import annotations

import dataclasses
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Final

from ..config.activemq_importer import ImportFinding, read_activemq, written
from ..config.policy import DestinationPolicy
from ..config.settings import Settings
from ..config.sizes import format_size
from .opened_store import chosen_settings
from .streams import Streams

_TOML: Final = ".toml"


def add_settings(parser: ArgumentParser) -> None:
    """Define `forebay settings`."""
    parser.description = (
        "Print each setting with its default, its value by a file or by the environment (FOREBAY_SYNC and so on), "
        "and what a size means on this machine. Of an activemq.xml: what becomes of each property."
    )
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="a .toml, or an activemq.xml (the defaults and the environment)"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print JSON: one object")
    how.add_argument("--toml", action="store_true", help="print a file that Settings.from_toml reads")
    parser.set_defaults(run=run_settings)


def run_settings(arguments: Namespace, streams: Streams) -> int:
    """Print settings. Return 0, also where a property of another broker is lost."""
    is_activemq = arguments.file is not None and not arguments.file.endswith(_TOML)
    if is_activemq and not arguments.toml:
        return _print_activemq(arguments.file, streams, is_json=arguments.json)
    if is_activemq:
        chosen = Settings(**read_activemq(arguments.file, Settings)[0])
    else:
        chosen = chosen_settings(arguments.file)
    if arguments.toml:
        streams.print(chosen.to_toml().rstrip("\n"))
        return 0
    defaults = Settings()
    rows = [
        (name, getattr(defaults, name), getattr(chosen, name), _effective(chosen, name))
        for name in (field.name for field in dataclasses.fields(Settings) if field.init)
        if name != "policies"
    ]
    if arguments.json:
        values = {name: {"default": default, "value": value, "means": means} for name, default, value, means in rows}
        policies = {name: dataclasses.asdict(policy) for name, policy in chosen.policies.items()}
        streams.print_json(values | {"policies": policies})
        return 0
    cells = [(name, written(default), written(value), means or "") for name, default, value, means in rows]
    streams.print_table(("setting", "default", "value", "means"), cells)
    for name, policy in chosen.policies.items():
        streams.print(f"policies[{written(name)}]  DestinationPolicy({', '.join(_chosen(policy))})")
    return 0


def _effective(settings: Settings, name: str) -> str | None:
    """Return the bytes that a size stands for on this machine, or None for a value that is no size."""
    attribute = "max_message_size_bytes" if name == "max_message_bytes" else f"{name}_bytes"
    size_bytes = getattr(settings, attribute, None)
    return None if size_bytes is None else format_size(size_bytes)


def _print_activemq(file: str, streams: Streams, *, is_json: bool) -> int:
    """Print a line for each property, then the settings."""
    fields, findings = read_activemq(file, Settings)
    chosen = Settings(**fields)
    if is_json:
        properties = [finding._asdict() for finding in findings]
        streams.print_json({"properties": properties, "settings": _changed(chosen)})
        return 0
    cells = [(str(found.line), found.property, found.value, _fate(found)) for found in findings]
    streams.print_table(("line", "property", "value", "becomes"), cells)
    lost = sum(bool(finding.problem) for finding in findings)
    streams.print("")
    streams.print(f"{len(findings) - lost} of {len(findings)} properties are honoured")
    streams.print(f"forebay.open({', '.join(['directory', *_chosen(chosen)])})")
    return 0


def _fate(finding: ImportFinding) -> str:
    if finding.problem:
        return f"not honoured: {finding.problem}"
    return f"{finding.becomes}: {finding.warning}" if finding.warning else finding.becomes


def _changed(chosen: Settings) -> dict[str, object]:
    """Return the fields that are not at their defaults, and all of each policy."""
    fields = [field for field in dataclasses.fields(chosen) if field.init and field.name != "policies"]
    changed = {field.name: value for field in fields if (value := getattr(chosen, field.name)) != field.default}
    return changed | {"policies": {name: dataclasses.asdict(policy) for name, policy in chosen.policies.items()}}


def _chosen(chosen: Settings | DestinationPolicy) -> Iterator[str]:
    """Yield the fields that are not at their defaults, as they are written in a call."""
    for field in dataclasses.fields(chosen):
        value = getattr(chosen, field.name)
        if field.name == "policies":
            calls = [f"{written(name)}: DestinationPolicy({', '.join(_chosen(value[name]))})" for name in value]
            if calls:
                yield f"policies={{{', '.join(calls)}}}"
        elif field.init and value != field.default:
            yield f"{field.name}={written(value)}"
