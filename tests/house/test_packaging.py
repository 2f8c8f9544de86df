"""The repository root is the package: what that layout costs is paid here.

These run against whatever is installed, the editable checkout or the wheel
(`make test INSTALL=wheel`); what only a wheel can show is skipped elsewhere.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import distributions, entry_points, packages_distributions
from pathlib import Path

import pytest

import forebay

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = PROJECT["tool"]["setuptools"]["packages"]
DOORS = {"__init__.py", "__main__.py", "aio.py", "metrics.py", "setup.py"}
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
    """Those that hold a module which is not empty."""
    return {
        module.parent
        for top in ROOT.iterdir()
        if top.is_dir() and not top.name.startswith(".") and top.name not in NOT_INSTALLED
        for module in top.rglob("*.py")
        if module.stat().st_size
    }


def test_root_holds_only_the_doors() -> None:
    """Any other module there would be installed as a part of forebay."""
    assert {module.name for module in ROOT.glob("*.py")} <= DOORS


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


def test_import_leaves_heavy_modules_alone(tmp_path: Path) -> None:
    """A host that only stores messages pays for no picture, no command line and no Spark."""
    program = "import forebay, sys; print(*sys.modules.keys() & {'argparse', 'psutil', 'pyarrow', 'pyspark', 'rich'})"
    loaded = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


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
    data |= {f"forebay/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "benchmarks/load").rglob("*.toml")}
    assert {name for name in installed if "__pycache__" not in name} == listed | data
