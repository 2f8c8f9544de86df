"""A bug that a store could have: a change in one function of the source, and the test that must find it.

A bug names the function, by its qualified name, and what changes in it, as
syntax: neither the file nor the formatting nor a comment counts. `old` is an
expression, or statements that follow each other. `...` as a whole body stands
for whatever is there, and in `new` for the same again. What can't be found,
or is found twice, is no bug: PlantingFailed.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Bug(NamedTuple):
    name: str
    """A sentence about the behaviour of the broken store."""
    function: str
    """The function that is changed, such as "Journal.sync"."""
    old: str
    new: str
    test: str
    """The quickest that finds it: an argument of pytest."""


class PlantingFailed(Exception):
    """The source has no such place, or several, or is the same with the bug as without."""


def planted(bug: Bug, sources: Mapping[str, str]) -> tuple[str, str]:
    """The file that changes, and its source with the bug. sources: by file."""
    *scopes, name = bug.function.split(".")
    # A file is parsed only if it may have the function: many classes have a `close`.
    words = [f"def {name}(", *(f" {scope}" for scope in scopes)]
    found = []
    is_changed = False
    for file, source in sources.items():
        if all(word in source for word in words):
            tree = ast.parse(source)
            planting = _Planting(bug)
            for function in functions_of(tree, bug.function):
                before = ast.dump(function)
                planting.visit(function)
                is_changed |= ast.dump(function) != before
            found += [(file, tree)] * planting.places
    if len(found) != 1:
        raise PlantingFailed(f"{bug.name}: {len(found)} places in {bug.function} have\n{bug.old}")
    if not is_changed:
        raise PlantingFailed(f"{bug.name}: nothing changes")
    [(file, tree)] = found
    return file, ast.unparse(ast.fix_missing_locations(tree))


def functions_of(tree: ast.AST, name: str, within: str = "") -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of that qualified name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            qualified = f"{within}.{node.name}".lstrip(".")
            if qualified == name and not isinstance(node, ast.ClassDef):
                yield node
            yield from functions_of(node, name, qualified)
        else:
            yield from functions_of(node, name, within)


class _Planting(ast.NodeTransformer):
    """Puts `new` in the place of each `old` and counts them."""

    def __init__(self, bug: Bug) -> None:
        self.places = 0
        self._old, self._new = ast.parse(bug.old).body, ast.parse(bug.new).body
        self._expression = self._of_expression(self._old)
        self._instead = self._of_expression(self._new)
        self._is_of_statements = self._expression is None or self._instead is None

    @staticmethod
    def _of_expression(statements: list[ast.stmt]) -> str | None:
        return ast.dump(statements[0].value) if len(statements) == 1 and isinstance(statements[0], ast.Expr) else None

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if self._is_of_statements:
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list):
                    setattr(node, name, self._planted_in(block))
        return node

    def visit(self, node: ast.AST) -> ast.AST:
        if not self._is_of_statements and isinstance(node, ast.expr) and self._is_old(node):
            self.places += 1
            new = self._new[0]
            assert isinstance(new, ast.Expr)
            return copy.deepcopy(new.value)
        found: ast.AST = super().visit(node)
        return found

    def _is_old(self, node: ast.expr) -> bool:
        return ast.dump(node) == self._expression

    def _planted_in(self, block: list[ast.stmt]) -> list[ast.stmt]:
        count = len(self._old)
        left: list[ast.stmt] = []
        at = 0
        while at < len(block):
            bodies: list[list[ast.stmt]] = []
            if _match(self._old, block[at : at + count], bodies):
                self.places += 1
                left += _filled(copy.deepcopy(self._new), iter(bodies))
                at += count
            else:
                left.append(block[at])
                at += 1
        return left


def _is_any(block: object) -> bool:
    return (
        isinstance(block, list)
        and len(block) == 1
        and isinstance(block[0], ast.Expr)
        and isinstance(block[0].value, ast.Constant)
        and block[0].value.value is ...
    )


def _match(pattern: object, found: object, bodies: list[list[ast.stmt]]) -> bool:
    """Whether they are the same. bodies: gets what `...` stands for."""
    if _is_any(pattern) and isinstance(found, list):
        bodies.append(found)
        return True
    if isinstance(pattern, list):
        return (
            isinstance(found, list)
            and len(pattern) == len(found)
            and all(_match(one, other, bodies) for one, other in zip(pattern, found, strict=True))
        )
    if isinstance(pattern, ast.AST):
        return type(pattern) is type(found) and all(
            _match(getattr(pattern, name, None), getattr(found, name, None), bodies) for name in pattern._fields
        )
    return pattern == found


def _filled(new: list[ast.stmt], bodies: Iterator[list[ast.stmt]]) -> list[ast.stmt]:
    for statement in new:
        for node in ast.walk(statement):
            for name in ("body", "orelse", "finalbody"):
                if _is_any(getattr(node, name, None)):
                    setattr(node, name, next(bodies))
    return new
