"""The process that test_pipeline_kill.py kills: a streaming query that keeps each batch in a file of its own.

Arguments: the store's directory, a checkpoint, where the batches go, and "now" to end with what is there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from spark_process import SMALL

from forebay.pipeline.spark.questions import register
from forebay.pipeline.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


LIMITS = {"on": "60000", "now": "2000000"}


def main(directory: str, checkpoint: str, out: str, mode: str) -> None:
    spark = session("local[2,100]", configuration=SMALL)
    register(spark)

    def keep(frame: DataFrame, batch: int) -> None:
        rows = frame.select("data_log", "offset", "kind", "destination", "sequence", "messages").collect()
        text = json.dumps([list(row) for row in rows])
        path = Path(out, f"batch-{batch}.json")
        if path.exists() and path.read_text() != text:
            Path(out, "differs").write_text(str(batch))
        part = path.with_suffix(f".part-{os.getpid()}")
        part.write_text(text)
        os.replace(part, path)

    source = spark.readStream.format("forebay").option("lease", "kills").option("maxBytesPerTrigger", LIMITS[mode])
    writer = source.load(directory).writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
    query = (
        writer.trigger(availableNow=True) if mode == "now" else writer.trigger(processingTime="200 milliseconds")
    ).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
