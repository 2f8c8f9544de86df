"""A commit whose non-persistent messages wait for room does not keep its store from closing cleanly."""

from __future__ import annotations

import pytest
from simulated_bay import SimulatedBay

from forebay import StoreFull


def test_a_store_closes_cleanly_while_messages_of_a_commit_wait_for_room() -> None:
    store = SimulatedBay(memory_limit="16MiB", temp_limit="1MiB", sync="always")
    orders, other = store.queue(), store.queue("other")
    transaction = store.bay.transaction()
    for _ in range(300):
        orders.send(bytes(5000), persistent=False, transaction=transaction)
    with pytest.raises(StoreFull):
        while True:
            other.send(bytes(5000), persistent=False, timeout=0)
    transaction.commit()
    store.reopen()
    assert store.bay.recovery.clean
