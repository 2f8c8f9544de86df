"""Settings without code: from a TOML file, from the environment, and back to TOML.

A file has the fields of Settings at its top, and a table for each policy:

    memory_limit = "256MiB"
    sync = "interval"

    [policies."orders.>"]
    max_messages = 100_000

A variable of the environment is a prefix and a field's name in capitals. TOML has no null, so the text "none" stands
for None in a field that admits None but has another default. Any other field is None if it is left out.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from ...store.disk.layout import PathArgument
from ...store.disk.user_file import read_user_file
from ...store.errors import SettingsError
from .policy import DestinationPolicy

FILE_BYTES_MAX: Final = 1 << 20
NONE: Final = "none"
SLIP: Final = 0.75
"""A name that is at least this similar to a field's is misspelt. MEM_LIMIT is; DIRECTORY may be the host's own."""
_TRUTHS: Final = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}


def read_toml(path: PathArgument, settings: type[Any]) -> dict[str, Any]:
    """Return the fields that a TOML file gives. SettingsError, with the file's name: no TOML, or an unknown field."""
    data = read_user_file(path, FILE_BYTES_MAX)
    try:
        table = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{path!s} is not TOML: {error}") from error
    policies = table.pop("policies", {})
    if not isinstance(policies, dict) or not all(isinstance(policy, dict) for policy in policies.values()):
        raise SettingsError(f'{path!s}: policies must be tables such as [policies."orders.>"]')
    fields = _checked(f"{path!s}", table, settings)
    if policies:
        fields["policies"] = {
            name: _policy(f"{path!s}, policies.{json.dumps(name)}", policy) for name, policy in policies.items()
        }
    return fields


def _policy(where: str, table: Mapping[str, Any]) -> DestinationPolicy:
    try:
        return DestinationPolicy(**_checked(where, table, DestinationPolicy))
    except SettingsError as error:
        text = str(error)
        raise error if text.startswith(where) else SettingsError(f"{where}: {text}") from error


def read_environment(prefix: str, environment: Mapping[str, str] | None, settings: type[Any]) -> dict[str, Any]:
    """Return the fields that variables with this prefix give.

    A variable that is no field is ignored, because hosts and Kubernetes have variables of their own. SettingsError: the
    name is almost that of a field, or the beginning of one.
    """
    by_name = {name.upper(): name for name in _fields(settings)}
    fields: dict[str, Any] = {}
    for variable, text in sorted((os.environ if environment is None else environment).items()):
        if not variable.startswith(prefix):
            continue
        given = variable[len(prefix) :]
        name = by_name.get(given)
        if name == "policies":
            raise SettingsError(f"{variable}: policies come from a file (Settings.from_toml), not from the environment")
        if name is not None:
            fields[name] = _parsed(variable, text, _fields(settings)[name])
        elif (meant := _meant(given, by_name)) is not None:
            raise SettingsError(f"there is no setting {variable}: did you mean {prefix}{meant}?")
    return fields


def _meant(given: str, known: Collection[str]) -> str | None:
    """Return the field that a misspelt name stands for; None: the variable is no setting.

    A whole field name behind other words (ORDERS_SYNC) is a setting of another store, whose prefix is longer.
    """
    import difflib  # only for a mistake

    if any(given.removesuffix(f"_{name}") not in ("", given) for name in known):
        return None
    begun = [name for name in known if given and name.startswith(f"{given}_")]
    close = begun[:1] or difflib.get_close_matches(given, known, 1, SLIP)
    return close[0] if close else None


def write_toml(settings: Any) -> str:
    """Return the text of a file from which `read_toml` makes equal settings. It leaves out fields that are None."""
    lines = list(_lines(settings))
    for name in settings.policies:
        lines += ["", f"[policies.{_quoted(name)}]", *_lines(settings.policies[name])]
    return "\n".join(lines) + "\n"


def _lines(record: Any) -> Iterator[str]:
    for name, field in _fields(type(record)).items():
        value = getattr(record, name)
        if name == "policies" or (value is None and field.default is None):
            continue
        yield f"{name} = {_value(NONE if value is None else value)}"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    """Return a basic string of TOML. TOML escapes as JSON does, and DEL in addition."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _fields(record: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(record) if field.init}


def _checked(where: str, table: Mapping[str, Any], record: type[Any]) -> dict[str, Any]:
    """Return the table with None in place of "none". SettingsError for an unknown field."""
    known = _fields(record)
    for name in table:
        if name not in known:
            import difflib  # only for a mistake

            close = difflib.get_close_matches(name, known, 1)
            advice = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            raise SettingsError(f"{where}: there is no setting {name!r}: {advice}")
    return {name: None if _is_none(value, known[name]) else value for name, value in table.items()}


def _is_none(value: object, field: dataclasses.Field[Any]) -> bool:
    return value == NONE and field.default is not None and "None" in str(field.type)


def _parsed(variable: str, text: str, field: dataclasses.Field[Any]) -> object:
    """Return the value that a text stands for, by the type of its field."""
    admitted = str(field.type)
    if "None" in admitted and text.lower() == NONE:
        return None
    if admitted == "bool":
        if text.lower() not in _TRUTHS:
            raise SettingsError(f'{variable}="{text}" must be one of {", ".join(_TRUTHS)}')
        return _TRUTHS[text.lower()]
    kinds: list[Callable[[str], object]] = []
    if "int" in admitted.split(" | "):
        kinds.append(int)
    if "float" in admitted.split(" | "):
        kinds.append(float)
    for kind in kinds:
        try:
            return kind(text)
        except ValueError:
            continue
    return text
