"""Queues, lanes, TargetLists and deliveries: the state under the one lock.

The rooms, from the top down: `destinations` opens and closes queues, `settling` removes messages and brings them back,
`areas` fills the lists and hands out, `lanes` says where an arrival goes, `lists` has what a list knows, `counting` the
counters, `consumer_groups` the members, `deliveries` the states of a message, `memory` who is charged.

Read `monitor.py`, which has the lock; then `deliveries/delivery.py`, and `model.py` for what points at each other.
docs/internals/dispatch-core.md has each file; docs/internals/overview.md says who owns what.
"""
