"""The generated parts of the documentation: tables of settings, policies, properties and files, and two pictures.

`make docs-tables` writes them. tests/house/test_docs.py fails where a page has another text.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
import sys
import textwrap
import tomllib
from argparse import Action
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import forebay
from forebay.__main__ import command_lines
from forebay.dispatch.config.activemq_importer import field_names
from forebay.dispatch.config.activemq_mapping import rows
from forebay.dispatch.config.policy import DestinationPolicy
from forebay.dispatch.config.settings import Settings
from forebay.store.errors import ForebayError

ROOT = Path(__file__).resolve().parents[2]

# ------------------------------------------------------------------ tables


def defaults_table() -> str:
    """Return the fields of Settings as a Markdown table, made from their docstrings."""
    return _table(Settings)


def policies_table() -> str:
    """Return the fields of DestinationPolicy as a Markdown table, made from their docstrings."""
    return _table(DestinationPolicy)


def properties_table() -> str:
    """Return which property of an ActiveMQ configuration becomes which field, as a Markdown table."""
    fields = {False: field_names(Settings), True: field_names(DestinationPolicy)}
    elements: dict[tuple[str, str], list[str]] = {}
    for element, row, is_policy in rows():
        if row.field in fields[is_policy]:
            note = f" ({row.note or row.warning})" if row.note or row.warning else ""
            becomes = f"`{row.field}`" + (" of the policy" if is_policy else "") + note
            elements.setdefault((row.property, becomes), []).append(f"`{element}`")
    lines = [
        f"| {f'`{name}`' if name else 'the element itself'} | {', '.join(found)} | {becomes} |"
        for (name, becomes), found in elements.items()
    ]
    return "\n".join(["| property | of | becomes |", "|---|---|---|", *lines])


def _table(kind: type[Settings] | type[DestinationPolicy]) -> str:
    defaults = {
        entry.name: {} if entry.default is dataclasses.MISSING else entry.default for entry in dataclasses.fields(kind)
    }
    lines = ["| setting | default | meaning | the price |", "|---|---|---|---|"]
    for name, documentation in _documented_fields(kind):
        meaning, price = documentation.split("\n")
        assert meaning.endswith("."), f"{name}: the first line below a field is its meaning, a whole sentence"
        lines.append(f"| `{name}` | `{_written(defaults[name])}` | {meaning} | {price.strip()} |")
    return "\n".join(lines)


def _documented_fields(kind: type) -> Iterator[tuple[str, str]]:
    """Yield each field that has a docstring below it, with that docstring."""
    definition = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(definition, ast.ClassDef)
    for statement, following in itertools.pairwise(definition.body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(documentation))):
                yield name, documentation


def _written(value: object) -> str:
    """Return a value as Python code for a call."""
    if isinstance(value, str):
        return f'"{value}"'
    return f"{value:_}" if type(value) is int else repr(value)


def core_files() -> str:
    """Return the files of dispatch.core as a Markdown table, made from their docstrings."""
    return _files_table("dispatch/core")


def consumer_files() -> str:
    """Return the files of dispatch.consumer as a Markdown table, made from their docstrings."""
    return _files_table("dispatch/consumer")


def _files_table(package: str) -> str:
    """Return each file of a package, and of those in it, with the first paragraph of its docstring."""
    lines = ["| file | says of itself |", "|---|---|"]
    for path in sorted((ROOT / package).rglob("*.py")):
        if path.stem != "__init__":
            text = inspect.cleandoc(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
            first = " ".join(text.partition("\n\n")[0].split())
            lines.append(f"| `{path.relative_to(ROOT).as_posix()}` | {_in_a_cell(first)} |")
    return "\n".join(lines)


def errors_tree() -> str:
    """Return the tree of errors, each with the first sentence of its docstring."""
    lines = [ForebayError.__name__, *_errors_below(ForebayError, "")]
    width = max(line.index("\0") for line in lines[1:]) + 2
    return "\n".join(["```text", lines[0], *(_columns(line, width) for line in lines[1:]), "```"])


def _errors_below(parent: type[ForebayError], indent: str) -> Iterator[str]:
    """Yield a line for each error below one, with a NUL between its name and its meaning."""
    children = [child for child in parent.__subclasses__() if child.__name__ in forebay.__all__]
    for child in children:
        is_last = child is children[-1]
        documentation = inspect.cleandoc(child.__doc__ or "")
        [meaning] = re.findall(r"\A(.*?)\.(?=\s|$)", documentation, re.DOTALL)
        yield f"{indent}{'└─' if is_last else '├─'} {child.__name__}\0{meaning[0].lower()}{meaning[1:]}"
        yield from _errors_below(child, indent + ("   " if is_last else "│  "))


def _columns(line: str, width: int) -> str:
    name, meaning = line.split("\0")
    return f"{name:<{width}}{' '.join(meaning.split())}"


def commands_table() -> str:
    """Return the commands as a Markdown table, made from their parsers."""
    lines = ["| command | what it does | options |", "|---|---|---|"]
    for command in command_lines():
        usage = " ".join(["forebay", command.name, *map(_argument, command.positionals())])
        options = [_option(action) for action in command.options() if action.dest != "help"]
        about = " ".join((command.parser.description or "").split())
        lines.append(f"| `{usage}` | {_in_a_cell(about)} | {'<br>'.join(options)} |")
    return "\n".join(lines)


def _argument(action: Action) -> str:
    name = str(action.metavar) if action.metavar else _choices(action)
    return {"+": f"{name} ...", "*": f"[{name} ...]", "?": f"[{name}]"}.get(str(action.nargs), name)


def _option(action: Action) -> str:
    flag = action.option_strings[-1]
    if action.choices is not None:
        flag = f"{flag} {_choices(action)}"
    elif action.nargs != 0:
        flag += f" {action.metavar}" * (action.nargs if isinstance(action.nargs, int) else 1)
    return f"`{flag}` {_in_a_cell((action.help or '') % {'default': action.default})}"


def _choices(action: Action) -> str:
    return _in_a_cell("|".join(map(str, action.choices or (action.dest,))))


def _in_a_cell(text: str) -> str:
    """Return a text with bars and stars escaped for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("*", "\\*")


LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARNING", "error": "ERROR", "exception": "ERROR", "log": "any"}


def events_table() -> str:
    """Return the events of all log records as a Markdown table, made from the calls that log them."""
    found: dict[str, tuple[set[str], set[str], set[str]]] = {}
    for path in (path for layer in ("store", "cache", "dispatch") for path in sorted((ROOT / layer).rglob("*.py"))):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        loggers = {
            target.id: call.args[0].value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(call := node.value, ast.Call)
            and ast.unparse(call.func) == "LateLogger"
            and isinstance(call.args[0], ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                logger = loggers.get(ast.unparse(node.func.value))
                if logger is None or node.func.attr not in LEVELS:
                    continue
                [event] = [word.value for word in node.keywords if word.arg == "event"]
                text = node.args[1 if node.func.attr == "log" else 0]
                assert isinstance(event, ast.Constant) and isinstance(text, ast.Constant), f"{path}:{node.lineno}"
                row = found.setdefault(str(event.value), (set(), set(), set()))
                row[0].add(f"`{logger!s}`")
                row[1].add(LEVELS[node.func.attr])
                row[2].add(str(text.value))
    lines = ["| event | logger | level | text |", "|---|---|---|---|"]
    for named, (loggers_of_it, levels, texts) in sorted(found.items()):
        said = "<br>".join(f"`{one}`" for one in sorted(texts))
        lines.append(f"| `{named}` | {', '.join(sorted(loggers_of_it))} | {', '.join(sorted(levels))} | {said} |")
    return "\n".join(lines)


# ------------------------------------------------------------------ packages


class Layers(NamedTuple):
    """One contract of import-linter: packages of one container, from the top down."""

    container: str
    """The package that all of them lie in, such as "forebay.dispatch"."""
    rows: list[list[str]]
    """Names relative to the container. Those in one row do not import each other."""


def layers() -> list[Layers]:
    """Return the contracts of type "layers" in pyproject.toml, the one of the whole package first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    found = [layer for contract in contracts if contract["type"] == "layers" for layer in _layers(contract)]
    return sorted(found, key=lambda layer: layer.container.count("."))


def _layers(contract: dict[str, list[str]]) -> Iterator[Layers]:
    given = [re.split(r"\s*[|:]\s*", line.strip("() ")) for line in contract["layers"]]
    if "containers" in contract:
        for container in contract["containers"]:
            yield Layers(container, [[name.strip("() ") for name in row] for row in given])
        return
    parts = [name.strip("() ").split(".") for row in given for name in row]
    common = [names[0] for names in itertools.takewhile(lambda names: len(set(names)) == 1, zip(*parts, strict=False))]
    container = ".".join(common[: min(len(common), min(map(len, parts)) - 1)])
    yield Layers(container, [[name.strip("() ").removeprefix(f"{container}.") for name in row] for row in given])


ROW_HEIGHT = 30
WIDTH = 900
NAME_WIDTH = 130
COLOURS = {"store": "#d9e8f5", "cache": "#f6e9b2", "dispatch": "#d5eee8", "pipeline": "#eadcf0"}


def packages_picture() -> str:
    """Return the contracts as an SVG: a band for each package of the root, and in it a row for each of its layers."""
    whole, *inner = layers()
    inside = {found.container.removeprefix(f"{whole.container}."): found.rows for found in inner}
    shapes: list[str] = []
    top = 10
    for row in whole.rows:
        top = _band(shapes, row, inside.get(row[0], []), top)
    body = textwrap.indent("\n".join(shapes), "  ")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top + 4}" viewBox="0 0 {WIDTH} {top + 4}" '
        'role="img" font-family="system-ui, -apple-system, \'Segoe UI\', \'DejaVu Sans\', sans-serif" font-size="13">\n'
        "  <title>Packages in layers. Each imports only what lies below it.</title>\n"
        f'  <rect width="{WIDTH}" height="{top + 4}" rx="8" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _band(shapes: list[str], names: list[str], rows_inside: list[list[str]], top: int) -> int:
    """Draw one layer of the whole package. Return where the next one begins."""
    height = max(1, len(rows_inside)) * ROW_HEIGHT + 8
    fill = COLOURS.get(names[0], "#eceff3")
    shapes.append(f'<rect x="10" y="{top}" width="{WIDTH - 20}" height="{height}" rx="6" fill="{fill}"/>')
    middle = top + height / 2 + 5
    shapes.append(f'<text x="24" y="{middle:g}" fill="#24292f" font-weight="600">{", ".join(names)}</text>')
    for number, row in enumerate(rows_inside):
        _row(shapes, row, top + 6 + number * ROW_HEIGHT)
    return top + height + 6


def _row(shapes: list[str], names: list[str], top: int) -> None:
    width = (WIDTH - NAME_WIDTH - 24) / len(names)
    for number, name in enumerate(names):
        left = NAME_WIDTH + number * width
        shapes.append(
            f'<rect x="{left:g}" y="{top}" width="{width - 6:g}" height="{ROW_HEIGHT - 4}" rx="4" fill="#ffffff" '
            'stroke="#8c959f"/>'
        )
        middle = left + (width - 6) / 2
        shapes.append(f'<text x="{middle:g}" y="{top + 18}" text-anchor="middle" fill="#24292f">{name}</text>')


# ------------------------------------------------------------------ threads and locks

MARGIN = 10
HEAD_HEIGHT = 30
STEP_HEIGHT = 34
THREADS = ("sender A", "sender B", "consumer", "forebay-loader", "forebay-housekeeper")
LOCK_COLOURS = {
    "state lock": "#d9e8f5",
    "sync lock": "#f6e9b2",
    "checkpoint lock": "#eadcf0",
    "no lock": "#eceff3",
    "waits": "#ffffff",
}


class Part(NamedTuple):
    """The work of one thread for some steps of time."""

    thread: int
    first: int
    steps: int
    under: str
    """The lock that the thread holds, or what it does without a lock."""
    text: str


PARTS = (
    Part(0, 0, 1, "state lock", "append 1, hold it back"),
    Part(1, 1, 1, "state lock", "append 2, hold it back"),
    Part(3, 1, 2, "no lock", "read older messages"),
    Part(0, 2, 3, "sync lock", "fdatasync for 1 and 2"),
    Part(1, 2, 4, "waits", "waits for the sync lock"),
    Part(2, 2, 1, "state lock", "take: neither is there"),
    Part(4, 2, 2, "checkpoint lock", "unlink data logs"),
    Part(3, 3, 1, "state lock", "put them into a list"),
    Part(2, 3, 4, "waits", "waits for messages"),
    Part(4, 4, 1, "state lock", "tell waiting senders"),
    Part(0, 5, 1, "state lock", "1 and 2 are durable"),
    Part(0, 6, 1, "state lock", "publish both, wake"),
    Part(1, 6, 1, "sync lock", "2 is durable: no sync"),
    Part(2, 7, 1, "state lock", "take: 1 and 2"),
    Part(0, 7, 1, "no lock", "send returns"),
    Part(1, 7, 1, "no lock", "send returns"),
)


def threads_picture() -> str:
    """Return the picture as an SVG: a column for each thread, time downwards, the colour is the lock."""
    column = (WIDTH - 2 * MARGIN) / len(THREADS)
    top = MARGIN + HEAD_HEIGHT
    bottom = top + STEP_HEIGHT * max(part.first + part.steps for part in PARTS)
    height = bottom + 44
    shapes = [
        f'<text x="{MARGIN + column * (number + 0.5):g}" y="{MARGIN + 18}" text-anchor="middle" '
        f'font-weight="600">{name}</text>'
        for number, name in enumerate(THREADS)
    ]
    for part in PARTS:
        shapes += _lock_box(
            MARGIN + column * part.thread + 3,
            top + STEP_HEIGHT * part.first + 2,
            column - 6,
            STEP_HEIGHT * part.steps - 4,
            part.under,
            part.text,
        )
    share = (WIDTH - 2 * MARGIN) / len(LOCK_COLOURS)
    for number, name in enumerate(LOCK_COLOURS):
        shapes += _lock_box(MARGIN + share * number + 3, bottom + 12, share - 6, 24, name, name)
    body = "\n".join(f"  {shape}" for shape in shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'role="img" font-family="system-ui, -apple-system, \'Segoe UI\', \'DejaVu Sans\', sans-serif" font-size="13">\n'
        "  <title>Two sends share one sync. Time runs downwards, and the colour is the lock.</title>\n"
        f'  <rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _lock_box(left: float, top: float, width: float, height: float, under: str, text: str) -> list[str]:
    """Return a coloured box with its text in the middle. The box of a waiting thread is dashed."""
    paint = f'fill="{LOCK_COLOURS[under]}"' + ' stroke="#8a94a3" stroke-dasharray="4 3"' * (under == "waits")
    return [
        f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="5" {paint}/>',
        f'<text x="{left + width / 2:g}" y="{top + height / 2 + 4.5:g}" text-anchor="middle">{text}</text>',
    ]


# ------------------------------------------------------------------ pages


def example_tables() -> str:
    """Return what the objects of a queue hold while two messages pass through it, as Markdown tables."""
    from traced_example import tables  # it needs the other modules of this folder, which `write` makes known

    return tables()


BLOCKS = {
    "docs/reference/settings.md": ("settings", defaults_table),
    "docs/reference/policies.md": ("policies", policies_table),
    "docs/reference/command-line.md": ("commands", commands_table),
    "docs/reference/errors.md": ("errors", errors_tree),
    "docs/reference/log-events.md": ("events", events_table),
    "docs/guide/migrating-from-activemq.md": ("activemq", properties_table),
    "docs/internals/first-change.md": ("example", example_tables),
    "docs/internals/dispatch-core.md": ("files", core_files),
    "docs/internals/dispatch-consumer.md": ("files", consumer_files),
}
"""Page, name of the block in it, and what makes the block."""


def block(name: str, text: str) -> str:
    """Return a generated block as it stands in a page."""
    return f"<!-- {name} -->\n{text}\n<!-- /{name} -->"


PICTURES: dict[str, Callable[[], str]] = {
    "docs/pictures/packages.svg": packages_picture,
    "docs/pictures/threads.svg": threads_picture,
}
"""By file name, the function that draws the picture."""


def write() -> None:
    """Write every generated part into its page."""
    sys.path.append(str(Path(__file__).parent))
    for page, (name, make) in BLOCKS.items():
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        begin = text.index(f"<!-- {name} -->")
        end = text.index(marker := f"<!-- /{name} -->") + len(marker)
        path.write_text(text[:begin] + block(name, make()) + text[end:], encoding="utf-8")
    for picture, draw in PICTURES.items():
        (ROOT / picture).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    write()
