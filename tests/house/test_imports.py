"""The picture of imports: no circle of files inside a layer, with imports counted that only types need.

And the modules that `import forebay` leaves for later, because every program and every command waits for that import.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import pytest

import forebay

ROOT = Path(forebay.__file__).parent
LAYERS = ("store", "cache", "dispatch", "pipeline", "benchmarks", "console", "pages")
LATE = (
    "argparse",
    "asyncio",
    "concurrent",
    "datetime",
    "difflib",
    "hashlib",
    "jinja2",
    "json",
    "matplotlib",
    "msgspec",
    "multiprocessing",
    "numpy",
    "psutil",
    "pyarrow",
    "pyspark",
    "rich",
    "socket",
    "sqlite3",
    "starlette",
    "subprocess",
    "tomllib",
    "uvicorn",
    "xml",
    "forebay.benchmarks",
    "forebay.console",
    "forebay.pages",
    "forebay.pipeline",
    "forebay.dispatch.aio",
    "forebay.dispatch.config.activemq_importer",
    "forebay.dispatch.config.settings_file",
    "forebay.dispatch.explain.blocked",
    "forebay.dispatch.explain.disk",
    "forebay.dispatch.explain.queues",
    "forebay.dispatch.explain.short",
    "forebay.dispatch.explain.whole",
    "forebay.dispatch.store_directories",
    "forebay.dispatch.planning.recorder",
    "forebay.dispatch.remote",
    "forebay.dispatch.screen",
    "forebay.store.format.trace",
    "forebay.store.inspect",
    "forebay.store.journal.scan",
    "forebay.store.maintenance.retention_reasons",
    "forebay.store.metadata.sqlite",
    "forebay.store.recovery.verify",
)
"""Modules that are imported when they are first needed."""


def modules_of(root: Path, package: str) -> dict[str, Path]:
    """Every module of a package by its dotted name, a package by the name of its folder."""
    found: dict[str, Path] = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """Modules among those given that a file imports anywhere, whether at run time or for types alone.

    A name that is taken from a package counts as its module where there is one of that name.
    """
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name.removeprefix("forebay.") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *((node.module or "").split(".") if node.module else [])])
            source = source.removeprefix("forebay.")
            targets = [f"{source}.{alias.name}" for alias in node.names]
            targets = [target if target in modules else source for target in targets]
        else:
            continue
        yield from (target for target in targets if target in modules and target != name)


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node, by Tarjan's algorithm. O(nodes + edges)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def graph_of(root: Path, package: str) -> dict[str, set[str]]:
    modules = modules_of(root, package)
    return {name: set(imported(name, path, modules)) for name, path in modules.items()}


@pytest.mark.parametrize("layer", LAYERS)
def test_no_circle_of_files(layer: str) -> None:
    assert circles(graph_of(ROOT, layer)) == []


def test_a_circle_is_found_also_where_only_types_close_it(tmp_path: Path) -> None:
    files = {
        "layer/__init__.py": "",
        "layer/a.py": "from .room.b import B\n",
        "layer/room/__init__.py": "",
        "layer/room/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import c\n",
        "layer/room/c.py": "import forebay.layer.a\nimport os\n",
        "layer/d.py": "from .a import A\nfrom .room import c\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert circles(graph_of(tmp_path, "layer")) == [["layer.a", "layer.room.b", "layer.room.c"]]


def modules_behind(code: str) -> list[str]:
    """Return the modules that some lines import in a fresh interpreter."""
    code = f"import sys; before = set(sys.modules); {code}; print(*set(sys.modules) - before)"
    return subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True).stdout.split()


def test_importing_forebay_imports_nothing_of_it_before_a_name_is_asked_for() -> None:
    assert [name for name in modules_behind("import forebay") if name.startswith("forebay.")] == []


def test_the_first_name_leaves_for_later_what_an_open_store_needs() -> None:
    names = modules_behind("import forebay; forebay.open")
    assert "forebay.dispatch.forebay" in names
    assert [name for name in sorted(names) if any(name == late or name.startswith(f"{late}.") for late in LATE)] == []


def test_errors_are_imported_without_the_engine() -> None:
    names = modules_behind("from forebay import ForebayError, StoreFull")
    assert "forebay.store.errors" in names and "forebay.dispatch.engine.engine" not in names


def test_type_checkers_find_each_name_where_the_program_finds_it() -> None:
    """The imports for type checkers are never run, so nothing else would notice a name that has moved."""
    checked = {
        alias.asname or alias.name: getattr(import_module(node.module or ""), alias.name)
        for block in ast.parse(Path(forebay.__file__).read_text(encoding="utf-8")).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {*checked, "__version__"} == set(forebay.__all__)
    for name, found in checked.items():
        assert getattr(forebay, name) is found, name


def test_a_name_that_there_is_not_is_an_attribute_error_as_of_any_module() -> None:
    with pytest.raises(AttributeError, match="'forebay' has no attribute 'opne'"):
        assert forebay.opne  # type: ignore[attr-defined]
