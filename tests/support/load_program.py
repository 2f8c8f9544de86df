"""The process that test_pipeline_kill.py kills: loads one after the other, each named in a file once it is done.

Arguments: the store's directory, the file, the first load and the last.
"""

from __future__ import annotations

import sys
from pathlib import Path

from spark_process import SMALL

from forebay.pipeline.loading import load
from forebay.pipeline.spark.session import session

ROWS = 4_000
PARTITIONS = 4


def main(directory: str, done: str, first: str, last: str) -> None:
    spark = session("local[2,100]", configuration=SMALL)
    for number in range(int(first), int(last) + 1):
        frame = spark.range(0, ROWS, 1, PARTITIONS).selectExpr(
            "if(id % 3 = 0, 'orders', 'audit') AS destination", f"concat({number}, ':', id) AS body"
        )
        load(spark, frame, directory, load_id=f"load-{number}").collect()
        with Path(done).open("a") as file:
            file.write(f"{number}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
