"""House rules that linters do not know. Each offence is reported as file, line and reason."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("store/", "cache/", "dispatch/")
TESTS = ("tests/",)
PACKAGE = (
    *LAYERS,
    "pipeline/",
    "benchmarks/",
    "console/",
    "pages/",
    "__init__.py",
    "__main__.py",
    "aio.py",
    "metrics.py",
    "testing.py",
)
ALL = (*PACKAGE, *TESTS)

FUNCTION_LINES_MAX = 70
PRIVATE_USES_MAX = 93
"""Uses of private names of others in tests. It may only fall: a new test asks the public interface, or `Inside`."""
PACKAGE_PRIVATE_USES_MAX = 6
"""The same in the package, between modules: what its parts ask of each other has a name of its own."""
MODULE_PRIVATE_USES_MAX = 29
"""The same in the package, within one module: of one class for another object of itself, or of two classes that share
the module."""
FOR_EVERYBODY = {"_check", "_replace", "_fields", "_asdict", "_exit", "_getframe"}
"""Names that look private: what a structure has for tests, and what named tuples, os and sys have for everybody."""

# The layers get disk, clock and randomness through a constructor, so that a test can hold them. These modules
# are where the real ones come from.
SYSTEM_MODULES = {"datetime", "fcntl", "io", "mmap", "os", "pathlib", "random", "secrets", "shutil", "socket"}
SYSTEM_MODULES |= {"sqlite3", "subprocess", "tempfile", "time", "uuid"}
MAY_TOUCH_THE_SYSTEM = {
    "store/environment/clock.py",
    "dispatch/remote/admin_socket.py",
    "store/environment/manual_clock.py",
    "store/disk/disk.py",
    "store/disk/kernel_sync.py",
    "store/disk/os_file.py",
    "store/disk/layout.py",
    "dispatch/engine/status_file.py",
    "dispatch/consumer/ready_signal.py",
    "store/metadata/sqlite.py",
    "store/disk/write_window.py",
    "store/disk/user_file.py",
    "cache/process/process_memory.py",
    "dispatch/config/settings_file.py",
}

MAY_SLEEP = {"tests/support/power_cut_workload.py"}
"""The program of a process that works until the power is cut."""

# Calls that change nothing. mypyc may compute the bounds of a slice twice.
REPEATABLE_CALLS = {"int", "len", "max", "min"}

EXECUTING_MODULES = {"dill", "marshal", "pickle", "shelve"}
EXECUTING_CALLS = {"eval", "exec", "__import__"}

# Written in pieces, because this file is judged like any other.
PLACES = re.compile("py" + r"pi|conda-for" + r"ge|(?<![\w.])/(?:farm|home|opt|root|tmp|Users|work)/", re.IGNORECASE)


BROKEN_COMMENT = re.compile(r"^ *# #(?!!)")
"""The remains of a comment that a program wrapped."""


class Source(NamedTuple):
    name: str
    """POSIX path from the root."""
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]
    """All of the tree, in the order of `ast.walk`: a walk for each rule would take most of the time."""


Offences = Iterator[tuple[int, str]]
"""Line and reason of each."""


def imports(source: Source) -> Iterator[tuple[int, str]]:
    """Line and full name of each absolute import; what is taken from a module counts as a part of it."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def calls(source: Source) -> Iterator[tuple[int, str]]:
    """Line and dotted name of what is called."""
    for node in source.nodes:
        if isinstance(node, ast.Call):
            yield node.lineno, dotted(node.func)


def dotted(expression: ast.expr) -> str:
    """Return a name with its dots. What is no name itself, as the outcome of a call, counts as ""."""
    match expression:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{dotted(value)}.{name}"
    return ""


def matches(source: Source, pattern: re.Pattern[str]) -> Offences:
    for number, line in enumerate(source.text.splitlines(), start=1):
        for match in pattern.finditer(line):
            yield number, f"says {match.group()!r}"


def names_no_place_of_one_machine(source: Source) -> Offences:
    yield from matches(source, PLACES)


def says_what_it_is(source: Source) -> Offences:
    if source.tree.body and ast.get_docstring(source.tree) is None:
        yield 1, "the module has no docstring"


def says_of_each_method_what_it_does(source: Source) -> Offences:
    """Text of one method that stands at another one too was put there by mistake."""
    for node in source.nodes:
        if isinstance(node, ast.ClassDef):
            said: dict[str, str] = {}
            for method in node.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    text = ast.get_docstring(method) or ""
                    if len(text.split()) > 3 and said.setdefault(text, method.name) != method.name:
                        yield method.lineno, f"{method.name} has the docstring of {said[text]}"


def says_of_a_property_what_it_is(source: Source) -> Offences:
    """Yield properties that are said to return something: they are read as fields are."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef):
            kinds = {kind.id for kind in node.decorator_list if isinstance(kind, ast.Name)}
            if kinds & {"property", "cached_property"} and (ast.get_docstring(node) or "").startswith("Return"):
                yield node.lineno, f"{node.name} is read as a field is: say what it is"


def has_whole_comments(source: Source) -> Offences:
    yield from matches(source, BROKEN_COMMENT)


def fits_in_the_head(source: Source) -> Offences:
    for node in source.nodes:
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (lines := body_lines(node)) > FUNCTION_LINES_MAX
        ):
            yield node.lineno, f"{node.name} has {lines} lines, above {FUNCTION_LINES_MAX}"


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """From its first line to its last, without the docstring."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        assert docstring.end_lineno is not None
        lines -= docstring.end_lineno - docstring.lineno + 1
    return lines


def gets_the_system_from_above(source: Source) -> Offences:
    if source.name in MAY_TOUCH_THE_SYSTEM:
        return
    for line, name in imports(source):
        if name.split(".")[0] in SYSTEM_MODULES:
            yield line, f"imports {name}: let the constructor take it"
    for line, name in calls(source):
        if name == "open":
            yield line, "opens a file beside the disk"


def executes_nothing_it_reads(source: Source) -> Offences:
    for line, name in imports(source):
        if name.split(".")[0] in EXECUTING_MODULES:
            yield line, f"imports {name}"
    for line, name in calls(source):
        if name in EXECUTING_CALLS:
            yield line, f"calls {name}"


def slices_by_values(source: Source) -> Offences:
    for node in source.nodes:
        if isinstance(node, ast.Slice):
            for found in ast.walk(node):
                if isinstance(found, ast.Call) and dotted(found.func) not in REPEATABLE_CALLS:
                    yield found.lineno, f"calls {ast.unparse(found.func)} for a slice: name the value first"


def knows_in_a_finally_what_it_asks(source: Source) -> Offences:
    """Machine code takes what a `try` has learnt about a name, "it isn't None", for true in its `finally` too."""

    def asked(statements: list[ast.stmt]) -> Iterator[tuple[int, str]]:
        for node in (node for statement in statements for node in ast.walk(statement)):
            if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name):
                if isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None:
                    yield node.lineno, node.left.id

    for node in source.nodes:
        if isinstance(node, ast.Try) and node.finalbody:
            learnt = {name for _, name in asked(node.body)}
            for line, name in asked(node.finalbody):
                if name in learnt:
                    yield line, f"asks in a finally whether {name} is None, as its try did: use another name"


def leaves_no_try_by_a_jump(source: Source) -> Offences:
    """Machine code can't be made of a `continue` or `break` that leaves a `try` with a `finally`."""
    loops = (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.AsyncFunctionDef)

    def jumps(node: ast.AST) -> Iterator[ast.stmt]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Break | ast.Continue):
                yield child
            elif not isinstance(child, loops):
                yield from jumps(child)

    found = {
        jump.lineno for node in source.nodes if isinstance(node, ast.Try) and node.finalbody for jump in jumps(node)
    }
    yield from ((line, "leaves a try with a finally by a jump: name the steps by a function") for line in found)


def prints_nothing(source: Source) -> Offences:
    for line, name in calls(source):
        if name == "print":
            yield line, "prints: a library only returns and raises"


def never_sleeps(source: Source) -> Offences:
    """`asyncio.sleep(0)` only lets a loop go round, and where time jumps nobody waits."""
    for line, name in (*imports(source), *calls(source)):
        if name == "time.sleep":
            yield line, "sleeps: drive step() and the clock by hand"
    if "run_jumping" not in source.text and source.name not in MAY_SLEEP:
        for node in source.nodes:
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("asyncio.sleep", "sleep"):
                if [ast.unparse(argument) for argument in node.args] != ["0"]:
                    yield node.lineno, "sleeps: await what is to happen, or let time jump by `loops.run_jumping`"


SEE = re.compile(r"\bSee ([A-Z]\w*)(?:\.(\w+))?(?=[.:;,])")
"""A docstring that refers to the text of another."""


def members_by_class(package: Sequence[Source]) -> dict[str, set[str]]:
    """Return what each class says itself that it has, by its name: what it inherits has its text elsewhere."""
    found: dict[str, set[str]] = {}
    for source in package:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(named(node))
    return found


def named(cls: ast.ClassDef) -> Iterator[str]:
    """Names of a class's methods and fields."""
    for node in cls.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name


def leaves_its_text_to_nobody(source: Source, known: dict[str, set[str]]) -> Offences:
    """Yield what says "See X." where no class X has such a member, or "See X.y." where it has no y."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            for found in SEE.finditer(text):
                owner, member = found.groups()
                if member is None and found.start() == 0:
                    member = node.name
                if owner not in known or (member is not None and member not in known[owner]):
                    yield node.lineno, f"{node.name} says {found.group()!r}: no class has that"


Rule = Callable[[Source], Offences]
RULES: dict[Rule, tuple[str, ...]] = {
    names_no_place_of_one_machine: ALL,
    says_what_it_is: ALL,
    says_of_each_method_what_it_does: PACKAGE,
    says_of_a_property_what_it_is: ALL,
    has_whole_comments: ALL,
    fits_in_the_head: ALL,
    gets_the_system_from_above: LAYERS,
    executes_nothing_it_reads: PACKAGE,
    slices_by_values: LAYERS,
    knows_in_a_finally_what_it_asks: LAYERS,
    leaves_no_try_by_a_jump: LAYERS,
    prints_nothing: LAYERS,
    never_sleeps: TESTS,
}

PLANTED: dict[Rule, str] = {
    names_no_place_of_one_machine: "HERE = '/" + "home/ann'",
    says_what_it_is: "x = 1",
    says_of_each_method_what_it_does: "class A:\n"
    "    def f(self):\n        '''Return its own size.'''\n    def g(self):\n        '''Return its own size.'''",
    says_of_a_property_what_it_is: "class A:\n    @property\n    def f(self):\n        '''Return its size.'''",
    has_whole_comments: "# " + "# left over",
    fits_in_the_head: "def long():\n    '''Ten\n    lines.'''\n" + "    x = 1\n" * FUNCTION_LINES_MAX,
    gets_the_system_from_above: "from os import path",
    executes_nothing_it_reads: "eval('1')",
    slices_by_values: "rest = rest[write(rest) :]",
    knows_in_a_finally_what_it_asks: "try:\n    x is None\nfinally:\n    x is None",
    leaves_no_try_by_a_jump: "for i in x:\n    try:\n        continue\n    finally:\n        f()",
    prints_nothing: "def f():\n    print(1)",
    never_sleeps: "import time\ntime.sleep(1)",
}


def parsed(name: str, text: str) -> Source:
    tree = ast.parse(text)
    return Source(name, text, tree, tuple(ast.walk(tree)))


def sources(scope: tuple[str, ...]) -> Iterator[Source]:
    for entry in scope:
        place = ROOT / entry
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place] if place.exists() else []:
            yield parsed(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def test_every_source_keeps_every_rule() -> None:
    """All rules at once: each source is parsed once, and no tree is kept."""
    offences = [
        f"{source.name}:{line}: {reason} ({rule.__name__})"
        for source in sources(ALL)
        for rule, scope in RULES.items()
        if source.name.startswith(scope)
        for line, reason in rule(source)
    ]
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_sees_a_planted_offence(rule: Rule) -> None:
    assert len(list(rule(parsed("store/planted.py", PLANTED[rule])))) == 1


@pytest.mark.parametrize("seconds", ["0.01", "random.random()"])
def test_a_loop_that_sleeps_is_seen_unless_its_time_jumps(seconds: str) -> None:
    sleeping = f"async def f():\n    await asyncio.sleep({seconds})\n    await asyncio.sleep(0)"
    assert [line for line, _ in never_sleeps(parsed("tests/planted.py", sleeping))] == [2]
    assert not list(never_sleeps(parsed("tests/planted.py", f"{sleeping}\nrun_jumping(f())")))


def _late_lambdas(tree: ast.Module) -> Iterator[int]:
    """Line of each lambda that asks for what is made after it: of `self`, or by a name that gets its value later."""
    for scope in ast.walk(tree):
        if isinstance(scope, ast.FunctionDef):
            made = {
                node.id: node.lineno
                for node in reversed([*ast.walk(scope)])
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            for node in ast.walk(scope):
                if isinstance(node, ast.Lambda):
                    names = {each.id for each in ast.walk(node.body) if isinstance(each, ast.Name)}
                    if "self" in names or any(made.get(name, 0) > node.lineno for name in names):
                        yield node.lineno


def test_an_owner_that_is_made_later_is_called_through_upcalls() -> None:
    late = [
        f"{source.name}:{line}"
        for source in sources(("dispatch/engine/engine.py", "dispatch/engine/assembly"))
        for line in [*_late_lambdas(source.tree)]
    ]
    planted = "class A:\n def f(self):\n  g(lambda: self.b)\ndef f(a):\n g(lambda: b + a)\n b = a"
    assert sorted(_late_lambdas(ast.parse(planted))) == [3, 5]
    assert not late, "Upcalls has all calls from an owner to one that is made after it"


def layers_walked(source: Source) -> Iterator[int]:
    """Yield the lines that ask an object for its `layers`, as only the engine asks itself."""
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr == "layers":
            yield node.lineno


def test_whoever_is_outside_the_engine_gets_parts_and_walks_no_layers() -> None:
    outside = [source for source in sources(PACKAGE) if not source.name.startswith(("dispatch/engine/", "benchmarks/"))]
    found = [f"{source.name}:{line}" for source in outside for line in layers_walked(source)]
    assert len(outside) > 300 and not found, "the engine gives bundles of parts: `QueueParts` is one of four"
    assert [*layers_walked(parsed("dispatch/planted.py", "self._engine.layers.core.loader"))] == [1]


def test_a_docstring_leaves_its_text_to_what_exists() -> None:
    package = list(sources(PACKAGE))
    known = members_by_class(package)
    offences = [
        f"{source.name}:{line}: {reason}"
        for source in package
        for line, reason in leaves_its_text_to_nobody(source, known)
    ]
    assert not offences, "\n".join(offences)
    planted = "def f():\n    'See X.'\ndef g():\n    'Do it. See X.'\ndef h():\n    'See X.f.'\ndef i():\n    'See Y.'"
    assert [line for line, _ in leaves_its_text_to_nobody(parsed("store/planted.py", planted), {"X": {"g"}})] == [
        1,
        5,
        7,
    ]


def private_names(source: Source) -> set[str]:
    """Return the private names that the classes of a module give to their own attributes and methods."""
    names: set[str] = set()
    for node in source.nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.ClassDef():
                names.update(named(node))
    return names


def private_uses(source: Source) -> Iterator[int]:
    """Line of each use of a private name of an object that is not the user itself."""
    yield from (line for line, _ in private_uses_by_name(source))


def private_uses_by_name(source: Source) -> Iterator[tuple[int, str]]:
    """Line and name of each use of a private name of an object that is not the user itself."""
    for node in source.nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super"))):
                pass
            case ast.Attribute(attr=name) if name.startswith("_") and not name.endswith("__"):
                if name not in FOR_EVERYBODY:
                    yield node.lineno, name


def test_parts_of_the_package_do_not_reach_further_into_each_other() -> None:
    between_modules: list[str] = []
    within_modules: list[str] = []
    for source in sources(PACKAGE):
        own = private_names(source)
        for line, name in private_uses_by_name(source):
            (within_modules if name in own else between_modules).append(f"{source.name}:{line}")
    for uses, most in ((between_modules, PACKAGE_PRIVATE_USES_MAX), (within_modules, MODULE_PRIVATE_USES_MAX)):
        assert len(uses) <= most, f"{len(uses)} uses of private names:\n" + "\n".join(uses)


def test_tests_do_not_reach_further_into_what_they_test() -> None:
    found = {
        source.name: [*private_uses(source)] for source in sources(TESTS) if Path(source.name).name.startswith("test_")
    }
    count = sum(map(len, found.values()))
    worst = sorted(found, key=lambda name: -len(found[name]))[:5]
    assert count <= PRIVATE_USES_MAX, f"{count} uses of private names; most of them in {', '.join(worst)}"
    planted = "self._a, cls._b, super()._c, found._check, found.__class__, found._d, found.e._f"
    assert len([*private_uses(parsed("tests/test_planted.py", planted))]) == 2
    of_one_module = parsed("store/planted.py", "class A:\n    def f(self, other):\n        self._a = other._a")
    assert private_names(of_one_module) == {"f", "_a"}
