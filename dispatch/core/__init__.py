"""Queues, lanes, TargetLists and deliveries: the state under the one lock.

Read `monitor.py`, which has the lock; then `delivery.py` for the states of a message and `model.py` for what points at
each other. `stored_lane.py` says where an arrival goes, `dispatch_area.py` hands out and settles, `target_area.py`
fills the lists, and `reclaim.py` says who gives memory back. `destinations.py` opens and closes queues, `publisher.py`
syncs, `redelivery.py`, `delays.py` and `deadlines.py` bring messages back. docs/internals/overview.md says who owns
what, docs/internals/dispatch-core.md why.
"""
