"""The tests are tested: each planted bug is found within a minute by the test that is named for it.

The package is copied, one place of the copy broken, and a fresh pytest run
that imports it from there. Found means that a test failed: a module that can't
be imported, a fixture that can't be made or a run that hangs shows nothing.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from planted_dispatch_bugs import DISPATCH_BUGS
from planted_interleaving_bugs import INTERLEAVING_BUGS
from planted_machine_bugs import MACHINE_BUGS
from planted_store_bugs import STORE_BUGS
from planting import Bug, PlantingFailed, planted

BUGS = (*STORE_BUGS, *DISPATCH_BUGS, *INTERLEAVING_BUGS, *MACHINE_BUGS)

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 60
CONTROL_LIMIT_SECONDS = 1_200
LAYERS = ("store", "cache", "dispatch")
EXIT_OK, EXIT_TESTS_FAILED = 0, 1

WITNESS = """
from pathlib import Path
import forebay
import pytest

def pytest_configure():
    if Path(forebay.__file__).resolve().parent != Path(__file__).resolve().parent / "forebay":
        raise pytest.UsageError(f"another forebay was imported: {forebay.__file__}")
"""


def copy_package(directory: Path) -> None:
    """The package as it is installed, so that `directory` on the path shadows whatever is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for package in project["tool"]["setuptools"]["packages"]:
        parts = package.split(".")
        folder = directory.joinpath(*parts)
        folder.mkdir(parents=True, exist_ok=True)
        for module in ROOT.joinpath(*parts[1:]).glob("*.py"):
            (folder / module.name).write_bytes(module.read_bytes())


@cache
def sources() -> dict[str, str]:
    """The sources of the layers, by path from the root."""
    paths = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def plant(bug: Bug, package: Path) -> None:
    file, source = planted(bug, sources())
    (package / file).write_text(source, encoding="utf-8")


def run_tests(directory: Path, tests: Sequence[str], limit_seconds: float) -> tuple[int | None, str]:
    """(exit code or None where the time was up, output) of a fresh pytest over the package in directory."""
    (directory / "witness.py").write_text(WITNESS, encoding="utf-8")
    options = ["-x", "-q", "-rf", "--tb=short", "-p", "witness", "-p", "no:cacheprovider", "--confcutdir=tests"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "pytest", "--import-mode=importlib", *options, *tests],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(directory), "FOREBAY_PATIENCE_SECONDS": "10"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_seconds)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        # With whatever the tests have started.
        os.killpg(process.pid, signal.SIGKILL)
        return None, process.communicate()[0]


def test_each_bug_has_a_name_of_its_own() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bug_can_be_planted_in_one_place_and_its_test_exists(bug: Bug) -> None:
    _, source = planted(bug, sources())
    compile(source, bug.function, "exec")
    file, *names = re.split("::|\\[", bug.test)
    assert all(f"def {name}(" in (ROOT / file).read_text(encoding="utf-8") for name in names[:1])


SOURCE = """
class Journal:
    def sync(self):
        with self.lock:
            self.file.sync()  # a comment
        return self.end

    def close(self):
        self.file.sync()
        self.file.sync()
"""


def test_a_bug_changes_its_function_and_nothing_else() -> None:
    bug = Bug("", "Journal.sync", "self.file.sync()", "pass", "")
    file, source = planted(bug, {"other.py": "def sync():\n    pass\n", "moved.py": SOURCE})
    assert file == "moved.py" and source.count("self.file.sync()") == 2 and "pass" in source
    bug = Bug("", "Journal.sync", "with self.lock: ...", "if self.lock: ...", "")
    assert "        if self.lock:\n            self.file.sync()\n" in planted(bug, {"moved.py": SOURCE})[1]


@pytest.mark.parametrize(
    "function, old, new",
    [
        ("Journal.sync", "self.file.flush()", "pass"),
        ("Journal.close", "self.file.sync()", "pass"),
        ("Journal.open", "self.file.sync()", "pass"),
        ("Journal.sync", "self.end", "self.end"),
    ],
    ids=["nowhere", "twice", "no function", "no change"],
)
def test_a_bug_that_cannot_be_planted_fails(function: str, old: str, new: str) -> None:
    with pytest.raises(PlantingFailed):
        planted(Bug("", function, old, new, ""), {"journal.py": SOURCE})


@pytest.mark.soak
def test_what_finds_them_passes_without_a_bug(tmp_path: Path) -> None:
    copy_package(tmp_path)
    code, output = run_tests(tmp_path, sorted({bug.test for bug in BUGS}), CONTROL_LIMIT_SECONDS)
    assert code == EXIT_OK, output


@pytest.mark.soak
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_planted_bug_is_found(bug: Bug, tmp_path: Path) -> None:
    copy_package(tmp_path)
    plant(bug, tmp_path / "forebay")
    code, output = run_tests(tmp_path, [bug.test], LIMIT_SECONDS)
    assert code == EXIT_TESTS_FAILED and "\nFAILED tests/" in output, f"exit code {code}\n{output}"
