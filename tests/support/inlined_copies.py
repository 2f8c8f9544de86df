"""Compare a function with the places in which it is written inline, by their syntax trees.

tests/house/test_inlined.py declares which function is written where. A method is named with its class, and a function
with its module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import forebay

ROOT = Path(forebay.__file__).parent

Code = list[ast.stmt] | ast.expr
"""Statements that stand one after the other, or an expression."""


class Copy(NamedTuple):
    """A function that is written inline at a place, in another function."""

    place: str
    original: str
    changes: dict[str, str] = {}
    """In order: what statement or expression of the original is what in the copy. Each must be in the original."""
    parts: tuple[str, ...] = ()
    """How the statements and expressions begin that are copied. Empty: the whole body is."""


# ------------------------------------------------------------------ the source


@cache
def sources() -> dict[Path, str]:
    """Return the text of each module of the library."""
    files = [path for layer in ("store", "cache", "dispatch") for path in (ROOT / layer).rglob("*.py")]
    return {path: path.read_text("utf-8") for path in files}


@cache
def functions() -> dict[str, tuple[Path, ast.FunctionDef]]:
    """Return the functions and methods of the library. Classes have different names."""
    found = {}
    for path, text in sources().items():
        for scope in ast.walk(ast.parse(text)):
            if isinstance(scope, ast.Module | ast.ClassDef):
                name = path.stem if isinstance(scope, ast.Module) else scope.name
                nodes = [node for node in scope.body if isinstance(node, ast.FunctionDef)]
                found.update({f"{name}.{node.name}": (path, node) for node in nodes})
    return found


def function(name: str) -> ast.FunctionDef:
    """Return a function that may be changed, without its docstring."""
    [found] = ast.parse(ast.unparse(functions()[name][1])).body
    assert isinstance(found, ast.FunctionDef)
    if ast.get_docstring(found) is not None:
        del found.body[0]
    return found


def runnable(name: str, **names: object) -> Any:
    """Return a function of the source that finds only these global names. A property is a function of the object."""
    node = function(name)
    node.decorator_list = []
    exec(f"from __future__ import annotations\n{ast.unparse(node)}", names)
    return names[node.name]


def inline_comments() -> Iterator[tuple[str, str]]:
    """Yield the function in which each comment with the word *inline* stands, and the comment."""
    for path, text in sources().items():
        for line, comment in enumerate(text.splitlines(), 1):
            if re.search(r"#.*\binlined?\b", comment):
                around = [name for name, (file, node) in functions().items() if file == path and has_line(node, line)]
                yield around[-1], comment.partition("#")[2]


def has_line(node: ast.FunctionDef, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or 0)


def assignments_from_outside() -> Iterator[tuple[str, str, str]]:
    """Yield each assignment of dispatch to an attribute of another object: where it is, the object, the attribute."""
    for name, (path, node) in functions().items():
        for part in ast.walk(node):
            if (
                isinstance(part, ast.Attribute)
                and isinstance(part.ctx, ast.Store)
                and ast.unparse(part.value) != "self"
            ):
                if path.is_relative_to(ROOT / "dispatch"):
                    yield name, ast.unparse(part.value), part.attr


# ------------------------------------------------------------------ what a copy must have


class Change(ast.NodeTransformer):
    """Puts something else in the place of each statement or expression that reads `old`."""

    def __init__(self, old: str, new: str) -> None:
        self.old = ast.unparse(ast.parse(old))
        self.new = ast.parse(new).body
        self.is_found = False

    def visit(self, node: ast.AST) -> Any:
        if not isinstance(node, ast.stmt | ast.expr) or ast.unparse(node) != self.old:
            return self.generic_visit(node)
        self.is_found = True
        return self.new if isinstance(node, ast.stmt) else cast(ast.Expr, self.new[0]).value


def expected_code(copy: Copy) -> list[Code]:
    """Return what must be found in a copy: the body of the original, or the parts of it, with the changes."""
    original = function(copy.original)
    nodes = [node for node in ast.walk(original) if isinstance(node, ast.stmt | ast.expr)]
    chosen = [next(node for node in nodes if ast.unparse(node).startswith(part)) for part in copy.parts]
    body = [node if isinstance(node, ast.stmt) else ast.Expr(node) for node in chosen or original.body]
    changed = ast.Module(body, [])
    for old, new in copy.changes.items():
        change = Change(old, new)
        changed = change.visit(changed)
        assert change.is_found, f"{copy.original} has no {old}"
    is_one_run = not copy.parts and not isinstance(changed.body[0], ast.Return)
    return [changed.body] if is_one_run else [_value_of(statement) or [statement] for statement in changed.body]


def _value_of(statement: ast.stmt) -> ast.expr | None:
    return statement.value if isinstance(statement, ast.Expr | ast.Return) else None


def missing_code(copy: Copy) -> list[str]:
    """Return what a copy should have of its original, and has not."""
    place = function(copy.place)
    missing = [code for code in expected_code(copy) if not _contains(place, code)]
    return ["\n".join(map(ast.unparse, code)) if isinstance(code, list) else ast.unparse(code) for code in missing]


def _contains(place: ast.FunctionDef, code: Code) -> bool:
    nodes = list(ast.walk(place))
    if not isinstance(code, list):
        return any(isinstance(node, ast.expr) and _is_copied_expression(node, code) for node in nodes)
    blocks = [getattr(node, name, []) for node in nodes for name in ("body", "orelse", "finalbody")]
    return any(
        _begins_with(block[at:], code) for block in blocks if isinstance(block, list) for at in range(len(block))
    )


def _is_copied_expression(copied: ast.expr, original: ast.expr) -> bool:
    """Whether an expression is a copy. A copied `or` may go on after what the original asks."""
    if isinstance(copied, ast.BoolOp) and isinstance(original, ast.BoolOp):
        copied = ast.BoolOp(copied.op, copied.values[: len(original.values)])
    return ast.unparse(copied) == ast.unparse(original)


def _begins_with(block: list[ast.stmt], code: list[ast.stmt]) -> bool:
    return len(block) >= len(code) and all(map(_is_copied_statement, block, code))


def _is_copied_statement(copied: ast.stmt, original: ast.stmt) -> bool:
    """Whether a statement is a copy. A copied `if` may do more after what the original does."""
    if isinstance(copied, ast.If) and isinstance(original, ast.If) and not original.orelse:
        return ast.unparse(copied.test) == ast.unparse(original.test) and _begins_with(copied.body, original.body)
    return ast.unparse(copied) == ast.unparse(original)
