"""A data source whose rows cost nothing to make: it gives one batch of facts again and again.

Its columns, types and rows in a batch are those of `facts`. So the difference between a question over `facts` and this
source is the cost of reading journals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from forebay.pipeline.kernels.fleet import disk_of, find_stores, plan
from forebay.pipeline.kernels.schema import COLUMNS, ddl
from forebay.pipeline.spark.worker import freeze_imports

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def ready_made(spark: SparkSession, broker: Path, columns: Sequence[str], records: int, tasks: int) -> DataFrame:
    """Return about `records` rows, which repeat the first batch of a broker's facts."""
    spark.dataSource.register(ReadyMadeSource)
    reader = spark.read.format(ReadyMadeSource.name()).schema(ddl({name: COLUMNS[name] for name in columns}))
    return reader.option("records", records).option("tasks", tasks).load(str(broker))


class ReadyMadeSource(DataSource):
    """The data source, which Spark's planner makes by its name."""

    @classmethod
    def name(cls) -> str:
        return "ready_made"

    def reader(self, schema: StructType) -> DataSourceReader:
        records, tasks = int(self.options["records"]), int(self.options["tasks"])
        return ReadyMadeReader(self.options["path"], schema.fieldNames(), records // tasks, tasks)


class ReadyMadeReader(DataSourceReader):
    """Gives each task the same number of rows."""

    def __init__(self, broker: str, columns: Sequence[str], records: int, tasks: int) -> None:
        self._broker = broker
        self._columns = columns
        self._records = records
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from forebay.pipeline.kernels.batches import Request, batches

        freeze_imports()
        (store,) = find_stores(self._broker)
        request = Request(store.broker, {name: COLUMNS[name] for name in self._columns})
        batch = next(iter(batches(disk_of(store), request, plan(disk_of(store))[0])))
        for _ in range(-(-self._records // batch.num_rows)):
            yield batch
