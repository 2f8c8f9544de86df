"""The repository root is the package: what that layout costs is paid here.

These run against whatever is installed, the editable checkout or the wheel
(`make test INSTALL=wheel`); what only a wheel can show is skipped elsewhere.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import distributions, entry_points, packages_distributions
from pathlib import Path
from typing import Any

import pytest
from compiled import IS_COMPILED
from packaging.requirements import Requirement

import forebay
from forebay.store.format.record import crc32

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = PROJECT["tool"]["setuptools"]["packages"]
FACADES = {"__init__.py", "__main__.py", "aio.py", "metrics.py", "setup.py", "testing.py"}
NOT_INSTALLED = {"tests", "build", "dist"}

# Asked by place, because a build leaves metadata in the root too.
[INSTALLED] = distributions(name="forebay", path=[sysconfig.get_path("purelib")])
IS_EDITABLE = json.loads(INSTALLED.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable", False)
only_a_wheel = pytest.mark.skipif(IS_EDITABLE, reason="shown by a wheel: make test INSTALL=wheel")


FOLDERS = PROJECT["tool"]["setuptools"]["package-dir"]


def folder_of(package: str) -> Path:
    name, *rest = package.split(".")
    return ROOT.joinpath(FOLDERS[name], *rest)


def package_of(folder: Path) -> str:
    for name, place in FOLDERS.items():
        if place != "." and folder == ROOT / place:
            return str(name)
    return ".".join(("forebay", *folder.relative_to(ROOT).parts))


def folders_with_code() -> set[Path]:
    """Return the packages that have a module which is not empty."""
    return {
        module.parent
        for top in ROOT.iterdir()
        if top.is_dir() and not top.name.startswith(".") and top.name not in NOT_INSTALLED
        for module in top.rglob("*.py")
        if module.stat().st_size
    }


def test_root_holds_only_the_facades() -> None:
    """Any other module there would be installed as a part of forebay."""
    assert {module.name for module in ROOT.glob("*.py")} <= FACADES


def test_every_folder_with_code_is_listed_as_a_package() -> None:
    assert {package_of(folder) for folder in folders_with_code()} <= set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_listed_package_has_an_init_file(package: str) -> None:
    assert (folder_of(package) / "__init__.py").is_file()


def test_tests_have_no_init_file() -> None:
    """pytest would then import them as a part of a package named after the checkout."""
    assert not (ROOT / "tests" / "__init__.py").exists()


def test_distribution_installs_its_name_and_the_one_that_spark_looks_for() -> None:
    names = {name for name, distributions in packages_distributions().items() if "forebay" in distributions}
    names = {name for name in names if not name.endswith("__mypyc")}  # the code of a compiled wheel
    assert names == {"forebay", "pyspark_forebay"}


def test_import_takes_the_installed_copy() -> None:
    expected = ROOT if IS_EDITABLE else Path(str(INSTALLED.locate_file("forebay")))
    assert Path(str(forebay.__file__)).resolve().parent == expected.resolve()


def test_version_is_the_one_in_pyproject() -> None:
    """Otherwise the environment is older than the checkout: install again."""
    assert INSTALLED.version == PROJECT["project"]["version"]


def test_type_marker_is_installed() -> None:
    assert (Path(str(forebay.__file__)).parent / "py.typed").is_file()


def test_console_script_is_the_main_function() -> None:
    [script] = entry_points(group="console_scripts", name="forebay")
    assert script.value == "forebay.__main__:main"
    assert callable(script.load())


@only_a_wheel
def test_wheel_holds_every_module_and_nothing_else() -> None:
    files = [file for file in INSTALLED.files or () if file.parts[0] in FOLDERS and file.suffix != ".so"]
    installed = {file.as_posix() for file in files}
    listed = {
        "/".join((*package.split("."), module.name))
        for package in PACKAGES
        for module in folder_of(package).glob("*.py")
    }
    data = {"forebay/py.typed"}
    others = [*(ROOT / "benchmarks/load").rglob("*.toml")]
    others += [path for name in ("benchmarks/load", "console", "pages") for path in (ROOT / name).rglob("*.html")]
    others += [path for name in ("console", "pages") for path in (ROOT / name / "static").iterdir()]
    data |= {f"forebay/{path.relative_to(ROOT).as_posix()}" for path in others}
    assert {name for name in installed if "__pycache__" not in name} == listed | data


@pytest.mark.parametrize(
    ("machine", "python", "comes"),
    [
        ("x86_64", "3.11", True),
        ("aarch64", "3.14", True),
        ("arm64", "3.13", True),
        ("s390x", "3.12", False),
        ("x86_64", "3.15", False),
    ],
)
def test_the_faster_checksum_comes_by_itself_where_it_has_a_wheel(machine: str, python: str, comes: bool) -> None:
    [needed] = [line for line in PROJECT["project"]["dependencies"] if line.startswith("zlib-ng")]
    marker = Requirement(needed).marker
    assert marker is not None
    assert marker.evaluate({"platform_machine": machine, "python_version": python}) is comes
    if marker.evaluate():
        assert crc32.__module__.startswith("zlib_ng")


def assigned(name: str) -> Any:
    """Return a literal of setup.py. It is not imported, because setuptools may be missing where nothing is built."""
    for statement in ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
            return ast.literal_eval(statement.value)
    raise AssertionError(f"setup.py has no {name}")


LAYERS = assigned("LAYERS")
INTERPRETED = assigned("INTERPRETED")
MODULES = [module.relative_to(ROOT) for layer in LAYERS for module in sorted((ROOT / layer).rglob("*.py"))]


@pytest.mark.parametrize("pattern", INTERPRETED)
def test_what_stays_interpreted_is_there(pattern: str) -> None:
    assert any(module.match(pattern) for module in MODULES)


def test_facades_of_compiled_classes_are_compiled() -> None:
    """An interpreted one would be listed in vain, and a path that moved would take a facade's checks away."""
    for facade in assigned("FACADES"):
        module = Path("dispatch", *facade.split(".")[:-1]).with_suffix(".py")
        assert module in MODULES
        assert not any(map(module.match, INTERPRETED))


@only_a_wheel
def test_compiled_wheel_compiles_what_is_not_listed_as_interpreted() -> None:
    compiled = {file.as_posix().split(".")[0] for file in INSTALLED.files or () if file.suffix == ".so"}
    expected = {f"forebay/{module.with_suffix('').as_posix()}" for module in MODULES}
    expected -= {f"forebay/{m.with_suffix('').as_posix()}" for m in MODULES if any(map(m.match, INTERPRETED))}
    named = {name for name in compiled if name.startswith("forebay/")}
    assert named == (expected if IS_COMPILED else set())


@pytest.mark.parametrize("command", ["editable_wheel", "develop"])
def test_machine_code_for_an_editable_install_is_refused_in_words(command: str, tmp_path: Path) -> None:
    """An editable install would stay interpreted: compiled modules go into a wheel."""
    stand_in = tmp_path / "setuptools"
    (stand_in / "command").mkdir(parents=True)
    (stand_in / "__init__.py").write_text("Extension = object\ndef setup(**fields): print(fields)\n")
    (stand_in / "command" / "__init__.py").touch()
    (stand_in / "command" / "build_ext.py").write_text("class build_ext: pass\n")

    def built(**environment: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), **environment}
        return subprocess.run(
            [sys.executable, "setup.py", command], cwd=ROOT, env=environment, capture_output=True, text=True
        )

    refused = built(FOREBAY_COMPILE="1")
    assert refused.returncode == 1 and refused.stdout == ""
    assert refused.stderr.startswith("FOREBAY_COMPILE=1 ") and "Leave out -e" in refused.stderr
    assert built(FOREBAY_COMPILE="").returncode == 0


WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PYTHONS = [
    said.rpartition(" ")[2]
    for said in PROJECT["project"]["classifiers"]
    if said.startswith("Programming Language :: Python :: 3.")
]


def test_every_python_that_is_promised_is_tested_and_has_a_compiled_wheel() -> None:
    matrix = (ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8")
    assert f"python: {json.dumps(PYTHONS)}" in matrix
    assert PROJECT["tool"]["cibuildwheel"]["build"] == [f"cp{version.replace('.', '')}-*" for version in PYTHONS]


def test_compiled_wheels_are_built_with_the_same_compiler_everywhere() -> None:
    [compiler] = re.findall(r"^COMPILER := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert PROJECT["tool"]["cibuildwheel"]["before-build"] == f"pip install {compiler}"
    checker = next(line for line in PROJECT["project"]["optional-dependencies"]["dev"] if line.startswith("mypy"))
    assert f'"{checker}"' in compiler


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_runs_targets_that_make_has(workflow: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"run: make ([a-z-]+)", workflow.read_text(encoding="utf-8"))
    assert named and set(named) <= set(targets)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_holds_no_secret_and_no_host(workflow: Path) -> None:
    """The tool that publishes a release knows the run by its identity, and has the address as its default."""
    text = workflow.read_text(encoding="utf-8")
    assert "secrets." not in text
    assert "://" not in text


def test_demo_installs_the_library_and_what_shows_in_a_terminal_and_nothing_of_the_tests() -> None:
    command = ["make", "--no-print-directory", "--dry-run", "demo", "DEMO_VENV=.venv-of-nobody"]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS")
    }
    said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    installed = re.findall(r"pip .*install .*\[([a-z,]+)\]", said)
    assert installed == ["terminal"] and said.rstrip().endswith(".venv-of-nobody/bin/forebay demo --fast")
    extras = PROJECT["project"]["optional-dependencies"]
    assert set(extras["terminal"]) <= set(extras["tools"]), "the demo shows what the load test shows"
