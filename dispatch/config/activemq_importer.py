"""Reads an ActiveMQ configuration into fields of Settings, and says what became of each property.

Every property of the broker's store, memory, disk and destinations is looked up in activemq_mapping.py and either
becomes a field or is reported with the reason. Nothing is guessed, and nothing is skipped without a report. An element
that corresponds to nothing is reported once, without what lies inside it.

The dataclass to fill is a parameter: `Settings.from_activemq` and `forebay settings` pass Settings, which this module
does not know.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ...store.disk.layout import PathArgument
from ...store.errors import SettingsError
from .activemq_mapping import (
    IMPLIED,
    IMPLIED_BY_SWITCH,
    POLICY_PROPERTIES,
    PROPERTIES,
    QUEUE,
    SAME_ELEMENTS,
    TOPIC,
    TOPIC_FIELDS,
    UNKNOWN_ELEMENTS,
    UNKNOWN_PROPERTY,
    WRAPPERS,
    PropertyMapping,
    rows,
    truth,
)
from .activemq_policies import PATTERNS_MAX, joined
from .activemq_xml import XmlElement, read_xml
from .policy import DestinationPolicy, pattern_problem

EVERYWHERE: Final = ""
"""Stands in place of a pattern, for a field of every policy that does not set it itself."""
EVERY_NAME: Final = ">"
SHOWN_CHARACTERS_MAX: Final = 60
PROPERTIES_MAX: Final = 50_000

_PLACEHOLDER: Final = re.compile(r"[$#]\{[^}]*\}?")
_PATTERN_ATTRIBUTES: Final = ("queue", "topic", "tempQueue", "tempTopic")
_ENTRIES: Final = ("policyEntry", "redeliveryPolicy")
"""Elements that configure the destinations of a pattern."""
_IS_SO_ANYWAY: Final = "is always so"


class ImportFinding(NamedTuple):
    """One property of the file: the field that it becomes, or the reason why it becomes none; the other is empty."""

    line: int
    property: str
    value: str
    becomes: str
    problem: str
    warning: str
    """How the setting differs from the property in ActiveMQ, where that may surprise."""


class _Entry(NamedTuple):
    """The policy entry, or redelivery policy, around a property."""

    element: str
    shown: str
    """The name of the entry in findings."""
    patterns: str
    kind: str
    """QUEUE or TOPIC. "": every destination that no entry names. For temporary destinations: the text of the file."""


_TOP: Final = _Entry("", "", EVERYWHERE, "")
"""Stands in place of an entry for properties outside of all entries."""


class ActiveMQConfiguration(NamedTuple):
    """An ActiveMQ configuration as fields of Settings."""

    fields: dict[str, Any]
    """The fields that the file sets, by name. The settings dataclass accepts all of them together."""
    findings: list[ImportFinding]
    """One finding for each property, in the order of the file."""


@dataclass(slots=True)
class _Property:
    """A property on its way to a finding."""

    place: str
    """The name of its element in findings."""
    name: str
    text: str
    line: int
    row: PropertyMapping | None = None
    entry: _Entry = _TOP
    pattern: str | None = None
    """The pattern of the policy that the property belongs to, or None if it belongs to no policy."""
    value: object = None
    becomes: str = ""
    problem: str = ""
    warning: str = ""

    @property
    def field(self) -> str:
        """The field that the property may become, or ""."""
        return self.row.field if self.row is not None and not self.problem else ""

    @property
    def map(self) -> tuple[str, str]:
        """The map of ActiveMQ with the property. A property without an entry counts as one of the queues' map."""
        return self.entry.element, self.entry.kind or (self.row.kind if self.row is not None else "") or QUEUE

    def finding(self) -> ImportFinding:
        note = f" ({self.row.note})" if self.becomes and self.row is not None and self.row.note else ""
        name = f"{self.place} {self.name}" if self.name else self.place
        becomes = self.becomes and self.becomes + note
        warning = self.warning if self.becomes else ""
        return ImportFinding(self.line, _shown(name), _shown(self.text), becomes, self.problem, warning)


def read_activemq(path: PathArgument, settings_type: Callable[..., object]) -> ActiveMQConfiguration:
    """Return the fields of `settings_type` that the file sets, and a finding for each property.

    `settings_type` is a frozen dataclass; its constructor raises SettingsError for what it cannot honour, which becomes
    a finding. SettingsError, with the line, for a file that is no ActiveMQ configuration.
    """
    root = read_xml(path)
    brokers = [element for element in (root, *root.children) if element.name == "broker"]
    if len(brokers) != 1:
        places = ", ".join(str(broker.line) for broker in brokers)
        found = f"brokers at lines {places}: keep one of them" if brokers else f"<{root.name}> without a <broker>"
        raise SettingsError(f"{path!s}, line {root.line}: {found}")
    properties: list[_Property] = []
    for element in [root] if root.name == "broker" else root.children:
        listed = _properties_of(element, None) if element is brokers[0] else iter([_skipped(element)])
        properties += itertools.islice(listed, PROPERTIES_MAX + 1 - len(properties))
    if len(properties) > PROPERTIES_MAX:
        raise SettingsError(f"{path!s}: more than {PROPERTIES_MAX:,} properties, each counted for each of its patterns")
    fields = _fields(properties, settings_type)
    return ActiveMQConfiguration(fields, [entry.finding() for entry in properties])


# ------------------------------------------------------------------ from elements to properties


def _properties_of(element: XmlElement, entry: _Entry | None) -> Iterator[_Property]:
    """Yield the properties of an element and of the elements in it.

    entry: the entry around them.
    """
    name = SAME_ELEMENTS.get(element.name, element.name)
    place, attributes = element.name, element.attributes
    if name in _ENTRIES:
        entry = _entry(element, name)
        attributes = {key: text for key, text in attributes.items() if key not in _PATTERN_ATTRIBUTES}
    if entry is not None and name in POLICY_PROPERTIES:
        place = f"{element.name}[{entry.shown}]"
    if name in WRAPPERS:
        attributes = {key: text for key, text in attributes.items() if key != "id"}
    elif name not in PROPERTIES and name not in POLICY_PROPERTIES:
        yield _skipped(element)
        return
    attributes, children = _with_implied(name, entry, attributes, element.children)
    for key, text in attributes.items():
        yield from _property(name, _Property(place, key, text, element.line, entry=entry or _TOP), attributes)
    if name == "mKahaDB":
        children, others = _one_store(element)
        yield from map(_skipped, others)
    for child in children:
        yield from _properties_of(child, entry)


def _with_implied(
    name: str, entry: _Entry | None, attributes: dict[str, str], children: list[XmlElement]
) -> tuple[dict[str, str], list[XmlElement]]:
    """Return the attributes with those that an element of this name implies, and the children that are left."""
    if name in IMPLIED:
        key, text = IMPLIED[name][TOPIC if entry is not None and entry.kind == TOPIC else QUEUE]
        attributes, children = _implied(key, text, attributes, children)
    if name in IMPLIED_BY_SWITCH and attributes.get(IMPLIED_BY_SWITCH[name][0], "").lower() == "true":
        _, key, text = IMPLIED_BY_SWITCH[name]
        attributes = {key: text} | attributes
    return attributes, children


def _implied(
    key: str, text: str, attributes: dict[str, str], children: list[XmlElement]
) -> tuple[dict[str, str], list[XmlElement]]:
    """Return the attributes with the one that the element implies, or that a child gives, and the other children."""
    named = [child for child in children if child.name == key]
    for queue in (queue for child in named for queue in child.children):
        text = queue.attributes.get("physicalName", text)
    return {key: text} | attributes, [child for child in children if child not in named]


def _entry(element: XmlElement, name: str) -> _Entry:
    """Return the policy entry, or redelivery policy, that an element describes."""
    for kind in _PATTERN_ATTRIBUTES:
        if kind in element.attributes:
            patterns = element.attributes[kind]
            return _Entry(name, patterns if kind == QUEUE else f"{kind} {patterns}", patterns, kind)
    return _Entry(name, EVERY_NAME, EVERY_NAME, "")


def _property(element: str, found: _Property, attributes: dict[str, str]) -> Iterator[_Property]:
    """Yield the property converted, once for each pattern of its entry; ActiveMQ separates patterns by commas."""
    for table, patterns in ((PROPERTIES, [None]), (POLICY_PROPERTIES, found.entry.patterns.split(","))):
        row = next((row for row in table.get(element, ()) if row.property == found.name), None)
        if row is None:
            continue
        for pattern in patterns:
            one = dataclasses.replace(found, row=row, pattern=None if pattern is None else pattern.strip())
            one.problem = _without_effect(row, one.entry.kind, attributes)
            if not one.problem:
                _convert(one)
            yield one
        return
    found.problem = UNKNOWN_PROPERTY
    yield found


def _without_effect(row: PropertyMapping, kind: str, attributes: dict[str, str]) -> str:
    """Return why a property has no effect in its place, here as in ActiveMQ, or "" if it has an effect."""
    if kind not in ("", QUEUE, TOPIC):
        return "there are no temporary destinations"
    if row.kind and kind and row.kind != kind:
        return f"of no effect on {kind}s"
    if row.switch is not None:
        switch, is_on = row.switch
        if attributes.get(switch, str(is_on)).lower() != "true":
            return f'of no effect without {switch}="true"'
    return ""


def _convert(found: _Property) -> None:
    """Set the value of a property, or the reason why it has none."""
    row = found.row
    assert row is not None
    if not row.field and row.convert is str:
        found.problem = row.note
        return
    placeholder = _PLACEHOLDER.search(found.text)
    if placeholder is not None:
        found.problem = f"the placeholder {_shown(placeholder[0])} is not resolved: write what it stands for"
        return
    try:
        found.value = row.convert(found.text)
    except ValueError as error:
        found.problem = str(error)
        return
    found.warning = row.warning
    if not row.field:
        found.becomes = "is a switch" if row.convert is truth else _IS_SO_ANYWAY


def _one_store(element: XmlElement) -> tuple[list[XmlElement], list[XmlElement]]:
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


def _skipped(element: XmlElement) -> _Property:
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
        if found.field and found.field not in (settings_names if found.pattern is None else policy_names):
            found.problem = f"not yet: there is no {found.field} so far"
    fields = _accepted([found for found in properties if found.pattern is None], settings_names, settings_type, "")
    policies = _policies([found for found in properties if found.pattern is not None], policy_names)
    if any(policy != DestinationPolicy() for policy in policies.values()):
        fields["policies"] = policies
    return fields


def _policies(properties: list[_Property], names: list[str]) -> dict[str, DestinationPolicy]:
    """Return the policies that these properties give; note at each property what it became."""
    everywhere: dict[str, Any] = {}
    # Of two entries with one pattern, the earlier decides: entries of queues before those of topics.
    maps: dict[tuple[str, str], dict[str, dict[str, Any]]] = {
        (element, kind): {} for kind in (QUEUE, TOPIC) for element in _ENTRIES
    }
    for (map_key, pattern), mine in sorted(_by_pattern(properties).items(), key=lambda group: group[0][0][1] == TOPIC):
        shown = pattern or EVERY_NAME
        problem = pattern_problem(shown)
        if problem is not None:
            for found in mine:
                found.problem, found.becomes = found.problem or problem, ""
            continue
        if map_key[1] == TOPIC:
            _yield_to_queues(mine, pattern, [entries for (_, kind), entries in maps.items() if kind == QUEUE])
        accepted = _accepted(mine, names, DestinationPolicy, f'policies["{_shown(shown)}"].')
        if map_key not in maps:
            everywhere |= accepted
        # A policy entry without known fields still keeps a less specific entry from deciding.
        elif accepted or map_key[0] == "policyEntry":
            maps[map_key][pattern] = accepted
    joint = joined(list(maps.values()))
    if everywhere:
        joint.setdefault(EVERY_NAME, {})
    return {pattern: DestinationPolicy(**everywhere | own) for pattern, own in joint.items()}


def _by_pattern(properties: list[_Property]) -> dict[tuple[tuple[str, str], str], list[_Property]]:
    """Return the properties by map and pattern. SettingsError: too many patterns."""
    groups: dict[tuple[tuple[str, str], str], list[_Property]] = {}
    for found in properties:
        assert found.pattern is not None
        groups.setdefault((found.map, found.pattern), []).append(found)
    if len(groups) > PATTERNS_MAX:
        raise SettingsError(f"there are more than {PATTERNS_MAX:,} patterns of policies: merge some of them")
    return groups


def _yield_to_queues(properties: list[_Property], pattern: str, maps: list[dict[str, dict[str, Any]]]) -> None:
    """Say at properties of topics that they hold for queues too, or that the same entry of queues says otherwise."""
    for found in properties:
        if not found.field or found.field in TOPIC_FIELDS:
            continue
        found.warning = "a policy holds for queues of these names too"
        for said in (entries.get(pattern, {}) for entries in maps):
            if said.get(found.field, found.value) != found.value:
                value = f"{found.field}={written(said[found.field])}"
                found.problem = f"the entry of the queues of these names decides for topics too: {value}"


def _accepted(properties: list[_Property], names: list[str], make: Callable[..., object], place: str) -> dict[str, Any]:
    """Return the fields of `make` that these properties give, tried one by one in the order in which it checks them."""
    fields: dict[str, Any] = {}
    order = {id(row): number for number, (_, row, _) in enumerate(rows())}
    wanted = [found for found in properties if found.field]
    wanted.sort(key=lambda found: (names.index(found.field), order[id(found.row)]))
    for found in wanted:
        field = found.field
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


def field_names(dataclass_type: Any) -> list[str]:
    """Return the names of the fields that may be given to a dataclass, in their order."""
    return [field.name for field in dataclasses.fields(dataclass_type) if field.init]


def written(value: object) -> str:
    """Return the value as Python code for a call."""
    return '"' + value + '"' if isinstance(value, str) and value.isprintable() and '"' not in value else repr(value)


def _shown(text: str) -> str:
    """Return the text in printable form and short enough for a line of a terminal."""
    kept = text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 1] + "…"
    return "".join(character if character.isprintable() else "?" for character in kept)
