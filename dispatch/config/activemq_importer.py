"""Settings from an ActiveMQ configuration: `Settings.from_activemq` and `forebay settings`.

Every property of the broker's store, memory, disk and destinations is looked
up in config/activemq_mapping.py and either becomes a field or is named with the
reason; nothing is guessed and nothing passed over in silence. What lies
inside an element that corresponds to nothing is named by that element alone.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ...store.disk.layout import PathArgument
from ...store.errors import SettingsError
from .activemq_mapping import (
    IMPLIED,
    POLICY_PROPERTIES,
    PROPERTIES,
    SAME_ELEMENTS,
    UNKNOWN_ELEMENTS,
    UNKNOWN_PROPERTY,
    WRAPPERS,
    Row,
    rows,
)
from .activemq_xml import Element, read_xml
from .policy import DestinationPolicy, pattern_problem
from .settings import Settings, SettingsWarning

EVERYWHERE: Final = ""
"""In place of a pattern: of all policies that do not say otherwise."""
EVERY_NAME: Final = ">"
SHOWN_CHARACTERS_MAX: Final = 60

_PLACEHOLDER = re.compile(r"[$#]\{[^}]*\}?")
_PATTERN_ATTRIBUTES: Final = ("queue", "topic", "tempQueue", "tempTopic")
_IS_SO_ANYWAY: Final = "is always so"


class Finding(NamedTuple):
    """One property: what it becomes, or why it is not honoured; the other of the two is empty."""

    line: int
    property: str
    value: str
    becomes: str
    problem: str


class Configuration(NamedTuple):
    settings: Settings
    findings: list[Finding]
    """In the order of the file."""


@dataclass(slots=True)
class _Property:
    """A property on its way to a finding. `place`: its element, as findings call it."""

    place: str
    name: str
    text: str
    line: int
    row: Row | None = None
    pattern: str | None = None
    """Of the policy that it is for."""
    value: object = None
    becomes: str = ""
    problem: str = ""

    def finding(self) -> Finding:
        note = f" ({self.row.note})" if self.becomes and self.row is not None and self.row.note else ""
        name = f"{self.place} {self.name}" if self.name else self.place
        return Finding(self.line, _shown(name), _shown(self.text), self.becomes and self.becomes + note, self.problem)


# ------------------------------------------------------------------ doors


def settings_from_activemq(path: PathArgument) -> Settings:
    """See `Settings.from_activemq`."""
    settings, findings = read_activemq(path)
    for finding in findings:
        if finding.problem:
            text = f'{path!s}, line {finding.line}: {finding.property}="{finding.value}" is not honoured: '
            warnings.warn(text + finding.problem, SettingsWarning, stacklevel=3)
    return settings


def settings_command(arguments: Namespace, print_line: Callable[[str], object]) -> int:
    """`forebay settings FILE`: a line a property, then the settings; 0 also where some are not honoured."""
    settings, findings = read_activemq(arguments.file)
    cells = [("line", "property", "value", "becomes")]
    for line, name, value, becomes, problem in findings:
        cells.append((str(line), name, value, becomes or f"not honoured: {problem}"))
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    for row in cells:
        print_line("  ".join([*map(str.ljust, row[:3], widths), row[3]]))
    lost = sum(bool(finding.problem) for finding in findings)
    print_line("")
    print_line(f"{len(findings) - lost} of {len(findings)} properties are honoured")
    print_line(f"forebay.open({', '.join(['directory', *_chosen(settings)])})")
    return 0


def read_activemq(path: PathArgument) -> Configuration:
    """All that the file says. SettingsError, with the line, for a file that is no ActiveMQ configuration."""
    root = read_xml(path)
    brokers = [element for element in (root, *root.children) if element.name == "broker"]
    if len(brokers) != 1:
        places = ", ".join(str(broker.line) for broker in brokers)
        found = f"brokers at lines {places}: keep one of them" if brokers else f"<{root.name}> without a <broker>"
        raise SettingsError(f"{path!s}, line {root.line}: {found}")
    properties: list[_Property] = []
    for element in [root] if root.name == "broker" else root.children:
        properties += _visit(element, None) if element is brokers[0] else [_passed_over(element)]
    settings = _settings(properties)
    return Configuration(settings, [found.finding() for found in properties])


def properties_table() -> str:
    """What becomes which field, as a Markdown table for the documentation."""
    elements: dict[tuple[str, str], list[str]] = {}
    for element, row, is_policy in rows():
        if row.field:
            field = f"`{row.field}`" + (" of the policy" if is_policy else "")
            is_there = row.field in (_POLICY_FIELDS if is_policy else _FIELDS)
            note = "; ".join(filter(None, [row.note, "" if is_there else "not honoured yet"]))
            becomes = field + (f" ({note})" if note else "")
            elements.setdefault((row.property, becomes), []).append(f"`{element}`")
    lines = [f"| `{name}` | {', '.join(found)} | {becomes} |" for (name, becomes), found in elements.items()]
    return "\n".join(["| property | of | becomes |", "|---|---|---|", *lines])


# ------------------------------------------------------------------ from elements to properties


def _visit(element: Element, policy: tuple[str, str] | None) -> Iterator[_Property]:
    """The properties of an element and of what is in it. policy: place and patterns of the entry around it."""
    name = SAME_ELEMENTS.get(element.name, element.name)
    place, attributes = element.name, element.attributes
    if name in ("policyEntry", "redeliveryPolicy"):
        policy = _policy(element)
        attributes = {key: text for key, text in attributes.items() if key not in _PATTERN_ATTRIBUTES}
    if policy is not None and name in POLICY_PROPERTIES:
        place = f"{element.name}[{policy[0]}]"
    if name in WRAPPERS:
        attributes = {key: text for key, text in attributes.items() if key != "id"}
    elif name not in PROPERTIES and name not in POLICY_PROPERTIES:
        yield _passed_over(element)
        return
    children = element.children
    if name in IMPLIED:
        attributes, children = _implied(name, attributes, children)
    for key, text in attributes.items():
        found = _Property(place, key, text, element.line)
        if key == "backOffMultiplier" and attributes.get("useExponentialBackOff", "").lower() != "true":
            found.problem = 'of no effect without useExponentialBackOff="true"'
            yield found
        else:
            yield from _property(name, found, policy)
    if name == "mKahaDB":
        children, others = _one_store(element)
        yield from map(_passed_over, others)
    for child in children:
        yield from _visit(child, policy)


def _implied(name: str, attributes: dict[str, str], children: list[Element]) -> tuple[dict[str, str], list[Element]]:
    """The attributes with what goes without saying, or is said by an element in it; and the other elements."""
    key, text = IMPLIED[name]
    named = [child for child in children if child.name == key]
    for queue in (queue for child in named for queue in child.children):
        text = queue.attributes.get("physicalName", text)
    return {key: text} | attributes, [child for child in children if child not in named]


def _policy(element: Element) -> tuple[str, str]:
    """How findings call an entry, and its pattern; an entry for topics or temporary ones has none."""
    for key in _PATTERN_ATTRIBUTES:
        if key in element.attributes:
            pattern = element.attributes[key]
            return (pattern, pattern) if key == "queue" else (f"{key} {pattern}", "")
    return EVERY_NAME, EVERY_NAME


def _property(element: str, found: _Property, policy: tuple[str, str] | None) -> Iterator[_Property]:
    """One for each pattern of its entry; ActiveMQ divides them by commas."""
    for table, patterns in (
        (PROPERTIES, None),
        (POLICY_PROPERTIES, policy[1].split(",") if policy is not None else [EVERYWHERE]),
    ):
        row = next((row for row in table.get(element, ()) if row.property == found.name), None)
        if row is None:
            continue
        for pattern in patterns or (None,):
            one = dataclasses.replace(found, row=row, pattern=None if pattern is None else pattern.strip())
            _convert(one)
            if policy is not None and not policy[1] and not one.problem:
                one.problem = "policies are for queues"
            yield one
        return
    found.problem = UNKNOWN_PROPERTY
    yield found


def _convert(found: _Property) -> None:
    row = found.row
    assert row is not None
    placeholder = _PLACEHOLDER.search(found.text)
    if placeholder is not None:
        found.problem = f"the placeholder {_shown(placeholder[0])} is not resolved: write what it stands for"
    elif not row.field and row.convert is str:
        found.problem = row.note
    else:
        try:
            found.value = row.convert(found.text)
        except ValueError as error:
            found.problem = str(error)
        else:
            found.becomes = "" if row.field else _IS_SO_ANYWAY


def _one_store(element: Element) -> tuple[list[Element], list[Element]]:
    """Of the stores of an mKahaDB, the one for all destinations; with it, the others. There is one journal here."""
    filtered = [entry for child in element.children for entry in child.children if entry.name == "filteredKahaDB"]
    general = [
        entry
        for entry in filtered
        if not {"queue", "topic"} & entry.attributes.keys() or entry.attributes.get("queue") == EVERY_NAME
    ]
    kept = general[:1] or (filtered if len(filtered) == 1 else [])
    others = [entry for entry in filtered if entry not in kept]
    others += [child for child in element.children if child.name not in WRAPPERS]
    return kept, others


def _passed_over(element: Element) -> _Property:
    name = SAME_ELEMENTS.get(element.name, element.name)
    problem = UNKNOWN_ELEMENTS.get(name, UNKNOWN_PROPERTY)
    if name == "filteredKahaDB":
        problem = 'one journal holds all destinations: the store without a filter, or with queue=">", is taken'
    # No attribute is shown: a plugin's may be a password.
    return _Property(f"<{element.name}>", "", element.attributes.get("class", ""), element.line, problem=problem)


# ------------------------------------------------------------------ from properties to settings

_FIELDS: Final = [field.name for field in dataclasses.fields(Settings) if field.init]
_POLICY_FIELDS: Final = [field.name for field in dataclasses.fields(DestinationPolicy) if field.init]


def _settings(properties: list[_Property]) -> Settings:
    """The fields that Settings accepts; each property learns what it became."""
    for found in properties:
        field = found.row.field if found.row is not None else ""
        if field and not found.problem and field not in (_FIELDS if found.pattern is None else _POLICY_FIELDS):
            found.problem = f"not yet: there is no {field} so far"
    fields = _accepted([found for found in properties if found.pattern is None], _FIELDS, Settings, "")
    policies: dict[str, dict[str, Any]] = {}
    for pattern in dict.fromkeys(found.pattern for found in properties if found.pattern is not None):
        mine = [found for found in properties if found.pattern == pattern]
        shown = pattern or EVERY_NAME
        problem = pattern_problem(shown)
        if problem is not None:
            for found in mine:
                found.problem, found.becomes = found.problem or problem, ""
            continue
        place = f'policies["{_shown(shown)}"].'
        accepted = _accepted(mine, _POLICY_FIELDS, DestinationPolicy, place)
        # An entry that says nothing we know still keeps a less specific one from deciding.
        if accepted or any(found.place.startswith("policyEntry") for found in mine):
            policies[pattern] = accepted
    everywhere = policies.pop(EVERYWHERE, {})
    if everywhere:
        policies.setdefault(EVERY_NAME, {})
    made = {pattern: DestinationPolicy(**everywhere | own) for pattern, own in policies.items()}
    if any(policy != DestinationPolicy() for policy in made.values()):
        fields["policies"] = made
    return Settings(**fields)


def _accepted(properties: list[_Property], names: list[str], make: Callable[..., object], place: str) -> dict[str, Any]:
    """The fields of `make` that these properties give, tried one by one in the order in which it checks them."""
    fields: dict[str, Any] = {}
    order = {id(row): number for number, (_, row, _) in enumerate(rows())}
    wanted = [found for found in properties if found.row is not None and found.row.field and not found.problem]
    wanted.sort(key=lambda found: (names.index(_field(found)), order[id(found.row)]))
    for found in wanted:
        field = _field(found)
        if field in fields and fields[field] != found.value:
            found.problem = f"{place}{field} is {fields[field]!r} already, by another property"
            continue
        try:
            make(**fields | {field: found.value})
        except SettingsError as error:
            found.problem = str(error)
            continue
        fields[field] = found.value
        found.becomes = f"{place}{field}={_written(found.value)}"
    return fields


def _field(found: _Property) -> str:
    assert found.row is not None
    return found.row.field


def _chosen(settings: Settings) -> Iterator[str]:
    """The fields that are not at their defaults, as one writes them."""
    for field in dataclasses.fields(Settings):
        value = getattr(settings, field.name)
        if field.name == "policies":
            if value:
                pairs = [f"{_written(pattern)}: {_policy_call(policy)}" for pattern, policy in value.items()]
                yield f"policies={{{', '.join(pairs)}}}"
        elif field.init and value != field.default:
            yield f"{field.name}={_written(value)}"


def _policy_call(policy: DestinationPolicy) -> str:
    chosen = [
        f"{field.name}={_written(getattr(policy, field.name))}"
        for field in dataclasses.fields(DestinationPolicy)
        if field.init and getattr(policy, field.name) != field.default
    ]
    return f"DestinationPolicy({', '.join(chosen)})"


def _written(value: object) -> str:
    return '"' + value + '"' if isinstance(value, str) and value.isprintable() and '"' not in value else repr(value)


def _shown(text: str) -> str:
    """For a terminal: printable and not long."""
    kept = text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 1] + "…"
    return "".join(character if character.isprintable() else "?" for character in kept)
