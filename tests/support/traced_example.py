"""The traced example of docs/internals/first-change.md: what each object holds while two messages pass through a queue.

`make docs-tables` writes the tables into the page. tests/house/test_docs.py compares the page with this module.
"""

from __future__ import annotations

from simulated_bay import SimulatedBay

from forebay.store.numbering import BLOCK_MASK, location_text

BODY = b"tea"
NOTHING = "–"
HOLDERS = ("head_queue_cache", "target_lists", "dispatch_area")


def tables() -> str:
    """Run the example on a simulated disk, and return a table in Markdown for each of the two messages."""
    simulated = SimulatedBay()
    queue = simulated.queue("orders")
    with queue.subscribe() as consumer:
        for _ in range(17):
            queue.send(BODY)
            for delivery in consumer.take(1):
                delivery.ack()
    first = {"before": held(simulated, 17)}
    queue.send(BODY)
    first["`send`"] = held(simulated, 17)
    with queue.subscribe() as consumer:
        first["`subscribe`"] = held(simulated, 17)
        [delivery] = consumer.take(1)
        first["`take(1)`"] = held(simulated, 17)
        delivery.ack()
        first["`ack`"] = held(simulated, 17)
        second = {"before": held(simulated, 18)}
        queue.send(BODY)
        second["`send`"] = held(simulated, 18)
        [delivery] = consumer.take(1)
        second["`take(1)`"] = held(simulated, 18)
        delivery.ack()
        second["`ack`"] = held(simulated, 18)
        simulated.bay.checkpoint()
        second["`checkpoint`"] = held(simulated, 18)
    simulated.bay.close()
    parts = [("Order 17 is sent while no consumer is there:", first), ("Order 18 is sent while one is there:", second)]
    return "\n\n".join(f"{text}\n\n{table(columns)}" for text, columns in parts)


def held(simulated: SimulatedBay, sequence: int) -> dict[str, str]:
    """Return what the objects of the queue say now, and what they know of the message with a sequence."""
    [lane] = [lane for lane in simulated.queue_state("orders").lanes if lane is not None]
    stored = lane.destination_lane
    block = stored.tail
    assert block is not None
    [use] = stored.data_log_uses.values()
    lists = simulated.lists()
    cached = lane.memory.head_queue_cache.peek(stored.number, sequence)
    direct = [", ".join(str(message[0]) for message in each.direct) or "empty" for each in lists]
    index = sequence & BLOCK_MASK
    is_added = sequence < stored.next_sequence
    return {
        "`DestinationLane.number`": str(stored.number),
        "`Journal.end`": location_text(simulated.journal.end),
        "`DestinationLane.next_sequence`": str(stored.next_sequence),
        "`DestinationLane.pending_messages`": str(stored.pending_messages),
        "`Block.offsets`, of the message": str(block.offsets[index]) if is_added else NOTHING,
        "`Block.gone`, its bit": str(block.gone >> index & 1) if is_added else NOTHING,
        "`Block.is_dirty`": "yes" if block.is_dirty else "no",
        "`DataLogUse.pending_bytes`, of data log 1": str(use.pending_bytes),
        "`LaneState.published_end`": str(lane.published_end),
        "`HeadQueueCache` has": NOTHING if cached is None else str(cached[0]),
        "`TargetList.direct`": direct[0] if direct else "no list",
        "`TargetList.frontier`": str(lists[0].frontier) if lists else NOTHING,
        "`LaneState.deliveries`": ", ".join(map(str, lane.deliveries)) or NOTHING,
        **{f"charge of `{name}`": str(simulated.budget.holders[name].held_bytes) for name in HOLDERS},
    }


def table(columns: dict[str, dict[str, str]]) -> str:
    """Return a table in Markdown: a row for each fact, a column for each step."""
    facts = next(iter(columns.values()))
    rows = [["fact", *(f"after {step}" if step != "before" else step for step in columns)]]
    rows += [[fact, *(column[fact] for column in columns.values())] for fact in facts]
    heading, *others = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([heading, "|---" * len(rows[0]) + "|", *others])
