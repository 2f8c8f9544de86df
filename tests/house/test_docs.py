"""The documentation: what it shows runs, what it names is there, and its generated parts are those of the code."""

from __future__ import annotations

import ast
import builtins
import re
import tomllib
import typing
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import reference
from doc_pages import DOCS, FENCED, LINK, PAGES, ROOT, SOURCE_NAME, TEXTS, anchors, code, rows, section, source_files

import forebay
from forebay.__main__ import OLD_NAMES, command_lines
from forebay.benchmarks.load.scenario_file import read_scenario, shipped
from forebay.store.format.record import ENTRY_BYTES, SLICE_BYTES

LINES_MAX = {
    "README.md": 200,
    "docs/internals/": 200,
    "docs/decisions/": 60,
    "": 300,
}
"""The first that a page's name begins with holds. CHANGELOG.md grows with each version."""


# ------------------------------------------------------------------ all pages


@pytest.mark.parametrize("page", [page for page in PAGES if "```python\n" in TEXTS[page]])
def test_examples_run_and_print_what_they_say(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each page by itself, in a new directory, so that it can be read alone."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    said: list[str] = []
    for match in FENCED.finditer(TEXTS[page]):
        if match[1] == "python":
            line = TEXTS[page].count("\n", 0, match.start(2))
            exec(compile("\n" * line + match[2], page, "exec"), names)
            said += re.findall(r"print\(.*\)  # (.*)", match[2])
    assert capsys.readouterr().out.splitlines() == said


def test_pages_with_examples_are_those_one_would_expect() -> None:
    """Else a mistake in a fence would switch examples off unseen."""
    with_examples = {page for page in PAGES if "```python\n" in TEXTS[page]}
    guide = ("getting-started", "queues", "topics", "transactions", "redelivery", "limits", "asyncio", "bulk-and-spark")
    assert with_examples >= {"README.md", *(f"docs/guide/{name}.md" for name in guide)}
    assert sum(text.count("  # ") for page, text in TEXTS.items() if page in with_examples) > 20


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_named_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake ([a-z-]+)", code(TEXTS[page])))
    assert page != "README.md" or {"demo", "test"} <= named
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_resolve(page: str) -> None:
    for link in LINK.findall(FENCED.sub("", TEXTS[page])):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("page", DOCS)
def test_site_has_only_links_into_itself(page: str) -> None:
    """mkdocs knows no file outside of docs/."""
    for link in LINK.findall(FENCED.sub("", TEXTS[page])):
        if "://" not in link:
            assert ((ROOT / page).parent / link.partition("#")[0]).resolve().is_relative_to(ROOT / "docs"), link


@pytest.mark.parametrize("page", PAGES)
def test_files_and_tests_named_exist(page: str) -> None:
    assert [name for name in SOURCE_NAME.findall(TEXTS[page]) if not (ROOT / name).is_file()] == []
    for file, function in re.findall(r"(tests/[\w/]+\.py)::(test_\w+)", TEXTS[page]):
        assert f"def {function}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{function}"


def test_reports_of_other_brokers_have_their_tests() -> None:
    assert len(re.findall(r"tests/[\w/]+\.py::test_\w+", TEXTS["docs/other-brokers.md"])) >= 16


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_no_page_is_too_long(page: str) -> None:
    [most, *_] = [most for begin, most in LINES_MAX.items() if page.startswith(begin)]
    assert len(TEXTS[page].splitlines()) <= most


def test_readme_is_short() -> None:
    assert len(TEXTS["README.md"].encode()) <= 16 * 1024


@pytest.mark.parametrize("page", [page for page in DOCS if re.search(r"decisions/\d", page)])
def test_a_decision_has_one_question_and_its_measurement(page: str) -> None:
    text = TEXTS[page]
    assert text.count("**Question.**") == 1 and "**Answer.**" in text and "**Measurement.**" in text
    assert f"({Path(page).name})" in TEXTS["docs/decisions/index.md"]


LAYERS = ("store", "cache", "dispatch", "pipeline", "tests/support")
CLASS_OR_MEMBER = re.compile(r"`([A-Z][a-z]\w*(?:\.[a-z_]\w*)?)(?:\(.*\))?`")


@cache
def members_by_class() -> dict[str, set[str]]:
    """Return what each class of the source has, by its name; what it inherits from a class of ours too."""
    members: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for path in map(ROOT.joinpath, source_files(*LAYERS, "console", "pages", "benchmarks")):
        for name in defined_in(path):
            cls, _, member = name.partition(".")
            members.setdefault(cls, set()).add(member)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases.setdefault(node.name, set()).update(ast.unparse(base).partition("[")[0] for base in node.bases)

    def inherited(cls: str) -> set[str]:
        return members.get(cls, set()).union(*map(inherited, bases.get(cls, set()) - {cls}))

    return {cls: inherited(cls) for cls in members}


def unknown_classes(text: str) -> list[str]:
    """Return the classes, and members with their class, that a text names and that are not there."""
    known, unknown = members_by_class(), []
    for name in CLASS_OR_MEMBER.findall(text):
        cls, _, member = name.partition(".")
        if hasattr(builtins, cls) or hasattr(typing, cls):
            continue
        if cls not in known or (member and member not in known[cls]):
            unknown.append(name)
    return unknown


def test_a_class_of_one_word_that_is_not_there_is_found() -> None:
    planted = "`Publisher` has `Postponed` in `Publisher.unpublished`, not in `Publisher.delayed` or `Delivery.gone()`"
    assert unknown_classes(planted) == ["Postponed", "Publisher.delayed", "Delivery.gone"]


@pytest.mark.parametrize("page", [page for page in DOCS if page.startswith("docs/internals/")])
def test_classes_and_methods_named_exist(page: str) -> None:
    assert unknown_classes(FENCED.sub("", TEXTS[page])) == []


def test_classes_and_methods_that_docstrings_name_exist() -> None:
    missing = {path: unknown_classes("\n".join(docstrings(path))) for path in source_files(*LAYERS)}
    assert not {path: found for path, found in missing.items() if found}


@pytest.mark.parametrize("page", [page for page in DOCS if page.startswith("docs/internals/")])
def test_what_a_page_names_is_a_name_of_the_source(page: str) -> None:
    """Constants too: a page that names one need not repeat its number."""
    named = re.findall(r"`([a-z]+(?:_[a-z0-9]+)+|[A-Z]+(?:_[A-Z0-9]+)+)(?:\(\))?`", FENCED.sub("", TEXTS[page]))
    assert not set(named) - names_of_the_source()


def docstrings(path: str) -> list[str]:
    """Return the docstrings of a file, with those below its constants and attributes."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return [
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


def docstring_names(path: str) -> set[str]:
    return {name for text in docstrings(path) for name in re.findall(r"`([a-z]+(?:_[a-z0-9]+)+)`", text)}


def test_what_docstrings_name_is_a_name_of_the_source() -> None:
    missing = {path: docstring_names(path) - names_of_the_source() for path in source_files(*LAYERS)}
    assert not {path: found for path, found in missing.items() if found}


@cache
def names_of_the_source() -> set[str]:
    """Return all names of the tree's code, and its strings of one word. What was renamed is none of them."""
    found = {name.rpartition(".")[2] for names in names_by_file().values() for name in names}
    found |= {Path(path).stem for path in source_files(*LAYERS)}
    for path in source_files(*LAYERS, "console", "pages", "benchmarks"):
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.keyword) and node.arg:
                found.add(node.arg)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                found.add(node.value)
    return found


def test_every_page_is_in_the_navigation() -> None:
    named = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(f"docs/{name}" for name in named) == DOCS


# ------------------------------------------------------------------ generated parts


@pytest.mark.parametrize("page", reference.BLOCKS)
def test_generated_part_is_the_one_that_is_generated(page: str) -> None:
    """`make docs-tables` writes it."""
    name, make = reference.BLOCKS[page]
    assert reference.block(name, make()) in TEXTS[page]


@pytest.mark.parametrize("picture", reference.PICTURES)
def test_picture_is_the_one_that_is_generated(picture: str) -> None:
    """`make docs-tables` writes it."""
    assert (ROOT / picture).read_text(encoding="utf-8") == reference.PICTURES[picture]()


@pytest.mark.parametrize("layers", reference.layers()[1:], ids=lambda layers: layers.container)
def test_layers_of_a_package_name_all_that_is_in_it(layers: reference.Layers) -> None:
    folder = ROOT.joinpath(*layers.container.split(".")[1:])
    inside = {path.name for path in folder.iterdir() if path.is_dir() and (path / "__init__.py").is_file()}
    inside |= {path.stem for path in folder.glob("*.py") if path.stat().st_size and path.name != "__init__.py"}
    assert {name for row in layers.rows for name in row} == inside


@pytest.mark.parametrize(
    ("heading", "container"),
    [
        ("The root", "forebay"),
        ("`cache`", "forebay.cache"),
        ("`store`", "forebay.store"),
        ("`dispatch`", "forebay.dispatch"),
    ],
)
def test_page_of_layers_has_every_package_in_the_layer_of_its_contract(heading: str, container: str) -> None:
    [contract] = [found for found in reference.layers() if found.container == container]
    table = rows(section(TEXTS["docs/internals/layers.md"], heading))
    assert [re.findall(r"`(\w+)`", row[0]) for row in table] == contract.rows
    assert all(row[1] for row in table), "each says what it owns"


def test_overview_shows_a_dozen_rooms_at_most_and_each_is_there() -> None:
    table = rows(section(TEXTS["docs/internals/overview.md"], "Packages"))
    named = [name for row in table for name in re.findall(r"`([\w.]+)`", row[0])]
    assert len(table) <= 12
    assert [name for name in named if not [*ROOT.glob(name.replace(".", "/") + "*")]] == []


@pytest.mark.parametrize(
    ("package", "page"),
    [
        ("dispatch/core", "docs/internals/dispatch-core.md"),
        ("dispatch/consumer", "docs/internals/dispatch-consumer.md"),
    ],
)
def test_page_of_a_package_says_what_each_of_its_files_has(package: str, page: str) -> None:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / package).rglob("*.py") if path.stem != "__init__"}
    named = [name for row in rows(TEXTS[page]) for name in re.findall(rf"`({package}/[\w/]+\.py)`", " ".join(row[:2]))]
    assert files == set(named)


def test_text_of_the_traced_example_has_the_numbers_of_its_tables() -> None:
    text = section(TEXTS["docs/internals/first-change.md"], "Two messages, with values")
    tables, steps = text.split("<!-- /example -->")
    ends = [int(offset) for line in re.findall(r"Journal.end.*", tables) for offset in re.findall(r":(\d+)", line)]
    written = {later - earlier for earlier, later in zip(ends, ends[1:], strict=False)}
    known = {int(number) for number in re.findall(r"\d+", tables)} | written | {SLICE_BYTES + ENTRY_BYTES}
    assert {number for number in map(int, re.findall(r"\d+", steps)) if number >= 17} <= known


# ------------------------------------------------------------------ names of the source

IDENTIFIER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
PLACE = re.compile(r"([\w/]+\.py):([\w.]+)")
OF_PYTHON_AND_USERS = {"assert_never", "isinstance", "try", "send_many", "take", "nack", "target_lists"}


def defined_in(path: Path) -> Iterator[str]:
    """Yield what a file defines, as `name` and as `Class.name`; a class has what its file writes to `self`, too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for scope in (tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))):
        prefix = f"{scope.name}." if isinstance(scope, ast.ClassDef) else ""
        for node in scope.body if isinstance(scope, ast.Module) else ast.walk(scope):
            match node:
                case (
                    ast.FunctionDef(name=name)
                    | ast.AsyncFunctionDef(name=name)
                    | ast.ClassDef(name=name)
                    | ast.AnnAssign(target=ast.Name(id=name))
                ):
                    yield f"{prefix}{name}"
                case ast.Assign(targets=[ast.Name(id=name)]):
                    yield f"{prefix}{name}"
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    yield f"{prefix}{name}"


@cache
def names_by_file() -> dict[Path, set[str]]:
    return {path: set(defined_in(path)) for layer in LAYERS for path in (ROOT / layer).rglob("*.py")}


FILE_NAMED = re.compile(r"[\w./-]*\w\.(?:py|md)\b")
CLASS_NAMED = re.compile(r"\b(?:[A-Z][a-z]+){2,}\b")
OTHERS_OR_PLURAL = {"DataFrames", "TargetLists"}


def named_in_vain(package: Path, docstring: str) -> list[str]:
    """Return the files and classes that a docstring of a package names and that are not there."""
    files = FILE_NAMED.findall(docstring)
    classes = set(CLASS_NAMED.findall(FILE_NAMED.sub("", docstring))) - OTHERS_OR_PLURAL
    missing = [name for name in files if not ((package / name).exists() or (ROOT / name).exists())]
    return [*missing, *(name for name in sorted(classes) if name not in members_by_class())]


def test_what_a_package_says_of_its_files_and_classes_is_there() -> None:
    packages = [
        path for path in map(ROOT.joinpath, source_files(*LAYERS, "console", "pages")) if path.stem == "__init__"
    ]
    found = {path.parent: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "" for path in packages}
    assert sum(len(FILE_NAMED.findall(text)) for text in found.values()) > 20
    missing = {package.relative_to(ROOT).as_posix(): named_in_vain(package, text) for package, text in found.items()}
    assert not {package: names for package, names in missing.items() if names}
    planted = "MessageStore is in `message_store.py`; MissingStore in `missing_store.py`, docs/missing.md has both."
    assert named_in_vain(ROOT / "store", planted) == ["missing_store.py", "docs/missing.md", "MissingStore"]


@pytest.mark.parametrize(
    "text",
    [
        TEXTS["docs/internals/recipes.md"],
        TEXTS["docs/internals/first-change.md"],
        section(TEXTS["docs/internals/overview.md"], "A message's life"),
        section(TEXTS["docs/internals/store-tmp.md"], "A non-persistent message's life"),
    ],
    ids=["recipes", "example", "persistent", "non-persistent"],
)
def test_names_of_the_source_in_recipes_and_in_the_lives_of_messages_exist(text: str) -> None:
    found = names_by_file()
    everywhere = set().union(*found.values())
    everywhere |= {f"{cls}.{member}" for cls, members in members_by_class().items() for member in members}
    names = {name.rpartition(".")[2] for name in everywhere}
    checked = 0
    for token in re.findall(r"`([^`\n]+)`", text):
        if place := PLACE.fullmatch(token):
            assert place[2] in found.get(ROOT / place[1], ()), f"{token} is not there"
        elif "/" in token or token.endswith(".py"):
            assert (ROOT / token).exists(), f"{token} is not there"
        elif IDENTIFIER.fullmatch(token) and token not in OF_PYTHON_AND_USERS:
            is_qualified = "." in token and token[0].isupper()
            assert token in everywhere if is_qualified else token in names, f"nothing is called {token}"
        else:
            continue
        checked += 1
    assert checked > 10


def callers(calls: Callable[[ast.Attribute], bool]) -> set[str]:
    """Return the functions of dispatch that make certain calls, as recipes name them."""
    found = set()
    for path in (ROOT / "dispatch").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        scopes: list[ast.Module | ast.ClassDef] = [tree]
        scopes += [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        for scope in scopes:
            prefix = f"{scope.name}." if isinstance(scope, ast.ClassDef) else f"{path.relative_to(ROOT).as_posix()}:"
            for function in (node for node in scope.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
                made = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
                if any(isinstance(called, ast.Attribute) and calls(called) for called in made):
                    found.add(f"{prefix}{function.name}")
    return found


def test_recipe_of_a_delivery_rule_names_all_who_wake_consumers() -> None:
    def notifies(called: ast.Attribute) -> bool:
        owner = called.value
        return called.attr in ("notify", "notify_all") and isinstance(owner, ast.Attribute) and owner.attr == "arrived"

    recipe = section(TEXTS["docs/internals/recipes.md"], "A delivery rule")
    threads, callbacks = (
        re.findall(r"`([^`]+)`", item) for item in re.findall(r"^- (.*(?:\n  .*)*)", recipe, re.MULTILINE)
    )
    assert set(threads) == callers(notifies)
    caller, *for_whom = callbacks
    assert caller == "SelectorGroup.call_armed"
    assert set(for_whom) == callers(lambda called: called.attr == "call_armed")


# ------------------------------------------------------------------ reference and guide


def test_scenarios_are_those_of_the_command_line() -> None:
    page = TEXTS["docs/reference/command-line.md"]
    assert all(f"`{name}`" in page for name in shipped())


def test_commands_that_pages_call_are_there_with_their_options() -> None:
    known = {command.name: command for command in command_lines()}
    for name, text in TEXTS.items():
        if name == "CHANGELOG.md":
            continue  # it tells of old names
        fenced = "\n".join(match[2] for match in FENCED.finditer(text) if match[1] == "sh")
        lines = re.findall(r"^forebay ([a-z].*)$", fenced, re.MULTILINE)
        lines += re.findall(r"`forebay ([a-z][^`\n]*)`", FENCED.sub("", text))
        for line in lines:
            words = line.split("  #")[0].split()
            called = " ".join(words[:2]) if words[0] == "pipeline" else words[0]
            if called in OLD_NAMES or called in ("pipeline", "pipeline NAME"):
                continue
            assert called in known, (name, line)
            flags = {flag for action in known[called].options() for flag in action.option_strings}
            assert {word for word in words if word.startswith("--")} <= flags, (name, line)


def test_scenarios_that_are_shown_can_be_read(tmp_path: Path) -> None:
    shown = [match[2] for match in FENCED.finditer(TEXTS["docs/guide/load-testing.md"]) if match[1] == "toml"]
    path = tmp_path / "shown.toml"
    found = []
    for text in shown:
        path.write_text(text, encoding="utf-8")
        found.append(read_scenario(str(path)))
    assert [(scenario.kills, len(scenario.consumers)) for scenario in found] == [(1, 4), (0, 101)]


def test_tree_of_errors_is_whole() -> None:
    [tree] = [match[2] for match in FENCED.finditer(TEXTS["docs/reference/errors.md"])]
    named = re.findall(r"(\w+)  +\w", tree)
    errors = {
        name
        for name in forebay.__all__
        if isinstance(found := getattr(forebay, name), type) and issubclass(found, forebay.ForebayError)
    }
    assert {"ForebayError", *named} == errors


def test_changelog_begins_with_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    headings = re.findall(r"^## (\S+)", TEXTS["CHANGELOG.md"], re.MULTILINE)
    assert headings[0] == version
