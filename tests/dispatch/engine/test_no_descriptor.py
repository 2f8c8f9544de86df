"""An open store of a process that has no descriptor left: it works on, and closes cleanly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import descriptors
import pytest
from descriptors import descriptors_left

import forebay
from forebay import Message

USES = """
import sys
from descriptors import descriptors_left
import forebay
from forebay import DestinationPolicy

policies = {"once": DestinationPolicy(duplicate_window=100)}
bay = forebay.open(sys.argv[1], memory_limit="32MiB", policies=policies, background=False)
with descriptors_left(0):
    queue = bay.queue("orders")
    queue.send(b"x", headers={"region": "eu", "wide": 1 << 80, "list": [1, "a"]}, group="g", message_id="7")
    bay.queue("once").send(b"x", message_id="1", producer="p")
    bay.queue("once").send(b"x", message_id="1", producer="p")
    consumer = queue.subscribe(selector="region = 'eu'")
    [delivery] = consumer.take(1)
    assert delivery.headers["wide"] == 1 << 80 and (delivery.id, delivery.group) == ("7", "g")
    consumer.nack(delivery)
    bay.statistics()
    assert queue.depth == 1 == bay.queue("once").depth
    bay.health()
    str(bay.explain())
    str(bay.explain(queue))
    bay.step()
    bay.cleanup()
    bay.close()
with forebay.open(sys.argv[1]) as bay:
    assert bay.recovery.clean
"""


def test_an_open_store_needs_no_further_import(tmp_path: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(Path(descriptors.__file__).parent)!r})\n{USES}"
    command = [sys.executable, "-P", "-c", program, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("map_journal", [True, False])
@pytest.mark.parametrize("left", [0, 1])
def test_a_close_without_descriptors_is_clean(tmp_path: Path, map_journal: bool, left: int) -> None:
    bay = forebay.open(tmp_path, memory_limit="32MiB", map_journal=map_journal)
    queue = bay.queue("orders")
    queue.send_many([Message(b"x" * 1000) for _ in range(2_000)])
    consumer = queue.subscribe()
    consumer.ack(consumer.take(100, timeout=5.0))
    with descriptors_left(left):
        bay.close()
    with forebay.open(tmp_path) as again:
        assert again.recovery.clean and again.queue("orders").depth == 1_900
