"""What a consumer with a selector of its own takes of RAM: some KiB, because thousands of them are nothing unusual."""

from __future__ import annotations

import gc
import tracemalloc

from compiled import interpreted
from simulated_bay import SimulatedBay

CONSUMERS = 300
BYTES_MAX = 6_000
"""With CPython 3.11 it is 5,050 to 5,550, of which the list and its deque are 1,400 and the compiled selector 1,500."""


@interpreted("machine code has its objects elsewhere")
def test_consumer_with_a_selector_of_its_own_takes_some_kib() -> None:
    bay = SimulatedBay()
    queue = bay.bay.queue("orders")
    queue.send(b"x", headers={"word": "none"})
    consumers = [queue.subscribe(selector=f"word = 'early {number}'") for number in range(20)]
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        consumers += [queue.subscribe(selector=f"word = 'own {number}'") for number in range(CONSUMERS)]
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / CONSUMERS <= BYTES_MAX
    assert not hasattr(consumers[0], "__dict__")
    for consumer in consumers:
        consumer.close()
