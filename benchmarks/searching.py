"""Measure what a selector's first scan for one match among many messages costs, and what each further scan costs.

    python -m forebay.benchmarks.searching --messages 1000000 --directory /tmp

It prints, for a header of two values, for numbers that ascend and for ids in no order, the time to the match and the
bytes that the process read meanwhile (`rchar` of /proc/self/io): for the first scan, the second one, and one after a
reopen. And it prints by how much the fingerprints that the first two made let the index on disk grow.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import forebay
from forebay.store.disk.layout import INDEX_DIRECTORY

BATCH = 256
SCRAMBLE = 2_654_435_761
"""An odd factor. Multiplication modulo 2**32 puts the numbers below 2**32 in an irregular order, without repeats."""
SELECTORS = ("region = 'eu'", "n = {rare}", "id = '{rare_id}'")
SCAN_SECONDS = 3600.0


def read_bytes() -> int:
    """Return the bytes that this process has read so far, files and page cache alike."""
    return int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])


def index_bytes(directory: str) -> int:
    """Return the size of the index of a closed store."""
    return sum(file.stat().st_size for file in Path(directory).glob(f"*/{INDEX_DIRECTORY}/*"))


def scrambled(n: int) -> str:
    return f"{n * SCRAMBLE % 2**32:08x}"


def fill(queue: forebay.Queue, messages: int, rare: int) -> None:
    """Send messages of 16 B, one of which has another region than the rest."""
    for first in range(0, messages, BATCH):
        queue.send_many(
            [
                forebay.Message(b"x" * 16, headers={"region": "eu" if n == rare else "us", "n": n, "id": scrambled(n)})
                for n in range(first, min(first + BATCH, messages))
            ]
        )


def search(queue: forebay.Queue, selector: str) -> str:
    """Find the match and return it to the queue; return a text with the time and the bytes read."""
    bytes_before, began, computed = read_bytes(), time.perf_counter(), time.process_time()
    with queue.subscribe(selector=selector) as consumer:
        found = consumer.take(1, timeout=SCAN_SECONDS)
        seconds, cpu = time.perf_counter() - began, time.process_time() - computed
        consumer.release(found)
    read = read_bytes() - bytes_before
    return f"{seconds * 1000:10.1f} ms {cpu * 1000:10.1f} ms of CPU {read / (1 << 20):8.2f} MiB read"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how fast a selector finds one message among many.")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--directory", default=None, help="where the store is made; it is deleted at the end")
    arguments = parser.parse_args()
    rare = arguments.messages * 9 // 10
    selectors = [selector.format(rare=rare, rare_id=scrambled(rare)) for selector in SELECTORS]
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        with forebay.open(directory, memory_limit="64MiB") as bay:
            fill(bay.queue("found"), arguments.messages, rare)
        for selector in selectors:
            before = index_bytes(directory)
            with forebay.open(directory, memory_limit="64MiB") as bay:
                for scan in ("first", "second"):
                    print(f"{selector:20} {scan:12} {search(bay.queue('found'), selector)}", flush=True)
            grown = (index_bytes(directory) - before) / rare
            print(f"{selector:20} {'fingerprints':12} {grown:10.3f} B a message examined", flush=True)
        with forebay.open(directory, memory_limit="64MiB") as bay:
            for selector in selectors:
                print(f"{selector:20} {'reopened':12} {search(bay.queue('found'), selector)}", flush=True)


if __name__ == "__main__":
    main()
