"""Reads an ActiveMQ configuration into fields of Settings, and says what became of each property.

Every property of the broker's store, memory, disk and destinations is looked
up in activemq_mapping.py and either becomes a field or is reported with the
reason; nothing is guessed and nothing is passed over in silence. An element
that corresponds to nothing is reported once, without what lies inside it.

The dataclass to fill is a parameter: `Settings.from_activemq` and
`forebay settings` pass Settings, which this module does not know.
"""

from __future__ import annotations

import dataclasses
import re
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

EVERYWHERE: Final = ""
"""Stands in place of a pattern: a field of every policy that does not set it itself."""
EVERY_NAME: Final = ">"
SHOWN_CHARACTERS_MAX: Final = 60

_PLACEHOLDER = re.compile(r"[$#]\{[^}]*\}?")
_PATTERN_ATTRIBUTES: Final = ("queue", "topic", "tempQueue", "tempTopic")
_IS_SO_ANYWAY: Final = "is always so"


class Finding(NamedTuple):
    """One property of the file: what it becomes, or why it is not honoured. The other of the two is empty."""

    line: int
    property: str
    value: str
    becomes: str
    problem: str


class Configuration(NamedTuple):
    """An ActiveMQ configuration in forebay's words."""

    fields: dict[str, Any]
    """Those that the file sets, by name; the settings dataclass accepts all of them together."""
    findings: list[Finding]
    """One for each property, in the order of the file."""


@dataclass(slots=True)
class _Property:
    """A property on its way to a finding."""

    place: str
    """What findings call its element."""
    name: str
    text: str
    line: int
    row: Row | None = None
    pattern: str | None = None
    """Pattern of the policy that the property belongs to; None: it belongs to no policy."""
    value: object = None
    becomes: str = ""
    problem: str = ""

    def finding(self) -> Finding:
        note = f" ({self.row.note})" if self.becomes and self.row is not None and self.row.note else ""
        name = f"{self.place} {self.name}" if self.name else self.place
        return Finding(self.line, _shown(name), _shown(self.text), self.becomes and self.becomes + note, self.problem)


def read_activemq(path: PathArgument, settings_type: Callable[..., object]) -> Configuration:
    """Return the fields of `settings_type` that the file sets, and a finding for each property.

    `settings_type` is a frozen dataclass; its constructor raises SettingsError
    for what it cannot honour, which becomes a finding. SettingsError, with the
    line, for a file that is no ActiveMQ configuration.
    """
    root = read_xml(path)
    brokers = [element for element in (root, *root.children) if element.name == "broker"]
    if len(brokers) != 1:
        places = ", ".join(str(broker.line) for broker in brokers)
        found = f"brokers at lines {places}: keep one of them" if brokers else f"<{root.name}> without a <broker>"
        raise SettingsError(f"{path!s}, line {root.line}: {found}")
    properties: list[_Property] = []
    for element in [root] if root.name == "broker" else root.children:
        properties += _properties_of(element, None) if element is brokers[0] else [_skipped(element)]
    fields = _fields(properties, settings_type)
    return Configuration(fields, [entry.finding() for entry in properties])


# ------------------------------------------------------------------ from elements to properties


def _properties_of(element: Element, policy: tuple[str, str] | None) -> Iterator[_Property]:
    """Yield the properties of an element and of the elements in it.

    `policy` holds the place and the patterns of the policy entry around them.
    """
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
        yield _skipped(element)
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
        yield from map(_skipped, others)
    for child in children:
        yield from _properties_of(child, policy)


def _implied(name: str, attributes: dict[str, str], children: list[Element]) -> tuple[dict[str, str], list[Element]]:
    """Return the attributes with the one that the element implies, or that a child gives, and the other children."""
    key, text = IMPLIED[name]
    named = [child for child in children if child.name == key]
    for queue in (queue for child in named for queue in child.children):
        text = queue.attributes.get("physicalName", text)
    return {key: text} | attributes, [child for child in children if child not in named]


def _policy(element: Element) -> tuple[str, str]:
    """Return what findings call a policy entry, and its pattern: "" for topics and temporary destinations."""
    for key in _PATTERN_ATTRIBUTES:
        if key in element.attributes:
            pattern = element.attributes[key]
            return (pattern, pattern) if key == "queue" else (f"{key} {pattern}", "")
    return EVERY_NAME, EVERY_NAME


def _property(element: str, found: _Property, policy: tuple[str, str] | None) -> Iterator[_Property]:
    """Yield the property converted, once for each pattern of its entry; ActiveMQ separates patterns by commas."""
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
    """Give the property its value, or say why it has none."""
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
    """Return the store of an mKahaDB that serves all destinations, if there is one, and the others.

    forebay has one journal, so it can take the properties of one store only.
    """
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


def _skipped(element: Element) -> _Property:
    """Return the one finding of an element that corresponds to nothing."""
    name = SAME_ELEMENTS.get(element.name, element.name)
    problem = UNKNOWN_ELEMENTS.get(name, UNKNOWN_PROPERTY)
    if name == "filteredKahaDB":
        problem = 'one journal holds all destinations: the store without a filter, or with queue=">", is taken'
    # No attribute is shown: a plugin's may be a password.
    return _Property(f"<{element.name}>", "", element.attributes.get("class", ""), element.line, problem=problem)


# ------------------------------------------------------------------ from properties to fields


def _fields(properties: list[_Property], settings_type: Callable[..., object]) -> dict[str, Any]:
    """Return the fields that the settings dataclass accepts; note at each property what it became."""
    settings_names, policy_names = field_names(settings_type), field_names(DestinationPolicy)
    for found in properties:
        field = found.row.field if found.row is not None else ""
        if field and not found.problem and field not in (settings_names if found.pattern is None else policy_names):
            found.problem = f"not yet: there is no {field} so far"
    fields = _accepted([found for found in properties if found.pattern is None], settings_names, settings_type, "")
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
        accepted = _accepted(mine, policy_names, DestinationPolicy, place)
        # An entry that says nothing we know still keeps a less specific one from deciding.
        if accepted or any(found.place.startswith("policyEntry") for found in mine):
            policies[pattern] = accepted
    everywhere = policies.pop(EVERYWHERE, {})
    if everywhere:
        policies.setdefault(EVERY_NAME, {})
    made = {pattern: DestinationPolicy(**everywhere | own) for pattern, own in policies.items()}
    if any(policy != DestinationPolicy() for policy in made.values()):
        fields["policies"] = made
    return fields


def _accepted(properties: list[_Property], names: list[str], make: Callable[..., object], place: str) -> dict[str, Any]:
    """Return the fields of `make` that these properties give, tried one by one in the order in which it checks them."""
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
        found.becomes = f"{place}{field}={written(found.value)}"
    return fields


def _field(found: _Property) -> str:
    assert found.row is not None
    return found.row.field


def field_names(dataclass_type: Any) -> list[str]:
    """Return the names of the fields that may be given to a dataclass, in their order."""
    return [field.name for field in dataclasses.fields(dataclass_type) if field.init]


def written(value: object) -> str:
    """Return the value as one writes it in a call."""
    return '"' + value + '"' if isinstance(value, str) and value.isprintable() and '"' not in value else repr(value)


def _shown(text: str) -> str:
    """Return the text printable and short enough for a line of a terminal."""
    kept = text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 1] + "…"
    return "".join(character if character.isprintable() else "?" for character in kept)
