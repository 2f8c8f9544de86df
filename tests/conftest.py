"""What every test gets: a Hypothesis that neither surprises nor looks at the clock, and one Spark session for all."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from spark_process import SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same examples in every run: a red test is red for its change. Finding new ones is the soak's work.
settings.register_profile(
    "house", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", settings.get_profile("house"), derandomize=False, max_examples=5_000)
settings.load_profile("house")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests with Spark in one process: each would start a JVM of its own."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


def pytest_collection_finish() -> None:
    """What the tests themselves are made of is never garbage: looking at it each time took a fifth of the CPU.

    Each test makes and drops thousands of objects in circles. Looking for them seven times less often takes a
    twentieth less, and much less often takes more: what is not in the processor's cache any more is slow.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 20, 20)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local session, shared because a JVM takes seconds to start. Skips where no Java can be had."""
    from forebay.pipeline.errors import SparkMissing
    from forebay.pipeline.spark.session import session

    # Spark looks for data sources on the path alone, where an editable install has no folder of that name.
    named = tmp_path_factory.mktemp("named")
    source = Path(__file__).parents[1] / "pipeline" / "pyspark_forebay"
    (named / "pyspark_forebay").symlink_to(source, target_is_directory=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(named), os.environ.get("PYTHONPATH"))))
    try:
        opened = session(
            "local[2]",
            configuration={
                **SMALL,
                "spark.driver.memory": "1g",
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            },
        )
    except SparkMissing as missing:
        pytest.skip(str(missing))
    yield opened
    opened.stop()
