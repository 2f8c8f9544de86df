"""A Spark session that suits this library: the right Python and Java, Arrow sizes, no UI, executors with this package.

You may use any session of your own. `configuration` overrides every setting of this one.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...store.errors import SettingsError
from ..errors import SparkMissing
from .java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
COLLECTOR: Final = "-XX:+UseParallelGC"
"""Rows live for microseconds. G1 makes each thread record its writes, which takes a fifth of the CPU."""
CONFIGURED_BY: Final = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_SUBMIT_OPTS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "spark.driver.defaultJavaOptions",
)
"""Settings that may name a collector already. A JVM with two collectors does not start."""
_COUNT: Final = r"\s*([0-9]+|\*)\s*"
_MASTERS: Final = re.compile(
    rf"local(\[{_COUNT}(,{_COUNT})?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|yarn|(spark|k8s|mesos)://\S+"
)
_LEFT_OUT: Final = {"tests", "build", "dist"}


def require_spark() -> None:
    """Raise SparkMissing if the extra `spark` is not installed."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise SparkMissing(f"{', '.join(missing)} {verb} not installed: pip install 'forebay[spark]'")


def configuration_of(master: str, configuration: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the configuration of `session`, overridden by the caller's own."""
    settings = dict(_SETTINGS)
    if master.startswith("local"):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
        if not any(name in os.environ or name in (configuration or {}) for name in CONFIGURED_BY):
            settings["spark.driver.extraJavaOptions"] = COLLECTOR
    return settings | dict(configuration or {})


def check_master(master: str) -> None:
    """Raise SettingsError if Spark knows no master of this form.

    Spark itself would start a Java process to refuse it.
    """
    if not _MASTERS.fullmatch(master):
        raise SettingsError(
            f"{master!r} is no master of Spark: give local[*], local[4], spark://HOST:7077, k8s://HOST:PORT or yarn"
        )


def session(
    master: str = "local[*]", *, app_name: str = "forebay", configuration: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the running session, or a new one. Raises SparkMissing with the name of what is not installed.

    master: as in Spark; SettingsError for an unknown form. Executors on other machines get this package by `addPyFile`;
    they must have Python, pyspark, pyarrow and pandas. A new session takes some seconds and half a GiB.
    """
    check_master(master)
    require_spark()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    # Otherwise workers would start the python3 of the PATH, which may lack these packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.Builder().master(master).appName(app_name)
    for name, value in configuration_of(master, configuration).items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # py4j and the launcher raise many types for a failed start
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise SparkMissing(f"Spark did not start: {reason}") from error
    spark.sparkContext.setLogLevel("ERROR")
    if not master.startswith("local"):
        add_package(spark)
    return spark


def add_package(spark: SparkSession) -> None:
    """Give executors this package, as a zip archive of its modules that exists until the process ends."""
    root = Path(__file__).resolve().parents[2]
    folder = Path(tempfile.mkdtemp(prefix="forebay-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = folder / "forebay.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as written:
        for source in sorted(root.rglob("*.py")):
            inside = source.relative_to(root)
            if inside.parts[0] not in _LEFT_OUT and not inside.parts[0].startswith("."):
                written.write(source, Path("forebay", inside))
    spark.sparkContext.addPyFile(str(archive))
