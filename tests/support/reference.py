"""The reference tables of the documentation, made from the source that they describe."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
from collections.abc import Iterator

from forebay import DestinationPolicy, Settings
from forebay.dispatch.config.activemq_importer import field_names
from forebay.dispatch.config.activemq_mapping import rows


def defaults_table() -> str:
    """Return all fields of Settings as a Markdown table."""
    return _table(Settings)


def policies_table() -> str:
    """Return all fields of DestinationPolicy as a Markdown table."""
    return _table(DestinationPolicy)


def properties_table() -> str:
    """Return which ActiveMQ property becomes which field, as a Markdown table."""
    fields, policy_fields = field_names(Settings), field_names(DestinationPolicy)
    elements: dict[tuple[str, str], list[str]] = {}
    for element, row, is_policy in rows():
        if row.field:
            field = f"`{row.field}`" + (" of the policy" if is_policy else "")
            is_there = row.field in (policy_fields if is_policy else fields)
            note = "; ".join(filter(None, [row.note, "" if is_there else "not honoured yet"]))
            becomes = field + (f" ({note})" if note else "")
            elements.setdefault((row.property, becomes), []).append(f"`{element}`")
    lines = [f"| `{name}` | {', '.join(found)} | {becomes} |" for (name, becomes), found in elements.items()]
    return "\n".join(["| property | of | becomes |", "|---|---|---|", *lines])


def _table(kind: type[Settings] | type[DestinationPolicy]) -> str:
    defaults = {
        entry.name: {} if entry.default is dataclasses.MISSING else entry.default for entry in dataclasses.fields(kind)
    }
    rows = ["| setting | default | meaning | the price |", "|---|---|---|---|"]
    for name, documentation in _documented_fields(kind):
        meaning, price = documentation.split("\n")
        rows.append(f"| `{name}` | `{_written(defaults[name])}` | {meaning} | {price.strip()} |")
    return "\n".join(rows)


def _documented_fields(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the fields that may be given, each with the docstring below it."""
    definition = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(definition, ast.ClassDef)
    for statement, following in itertools.pairwise(definition.body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(documentation))):
                yield name, documentation


def _written(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return f"{value:_}" if type(value) is int else repr(value)
