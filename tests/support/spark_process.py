"""A program with Spark as a process that is killed: its driver with the JVM, or one of its Python workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import psutil

SMALL = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}
"""Options for a JVM that lives for seconds: in so short a time, better compilation costs more than it saves."""
TASKS = "pyspark.daemon pyspark.worker"
"""Part of the command line of workers that run tasks. Other workers plan, or feed streams."""


class SparkProcess:
    """A Spark program in a session of its own, so that one signal ends driver and JVM."""

    def __init__(self, program: Path, log: Path, *arguments: str) -> None:
        with log.open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, str(program), *arguments], stdout=said, stderr=said, start_new_session=True
            )

    def wait(self, seconds: float) -> None:
        """Wait until the program ends by itself, at most these seconds."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        children = []
        with suppress(psutil.Error):
            children = psutil.Process(self.process.pid).children(recursive=True)  # the JVM has a session of its own
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for child in children:
            with suppress(psutil.Error):
                child.kill()
        self.process.wait()

    def kill_a_worker(self, random: Random) -> bool:
        """Kill a worker: nine times of ten one that runs tasks, else any. Return False if there is none."""
        wanted = TASKS if random.random() < 0.9 else TASKS.split()[0]
        with suppress(psutil.Error):
            children = psutil.Process(self.process.pid).children(recursive=True)
            workers = [child for child in children if wanted in " ".join(child.cmdline())]
            if workers:
                random.choice(workers).kill()
                return True
        return False
