"""Queues, lanes, TargetLists and deliveries: the state under the state lock.

From the top down:

- `destinations` opens and closes queues and topics.
- `redelivery` removes messages and brings them back.
- `confirmer.py` does what a write still owes, and `publisher.py` shows consumers what is written.
- `areas` fills the lists and hands out.
- `memory` decides what stays in RAM.
- `model` has the lanes, lists, selector groups and deliveries themselves.
- `monitor.py` has the lock.

`owners.py`, above all of them, is what is handed to the packages above. docs/internals/dispatch-core.md explains each
file; docs/internals/owners.md says who owns what.
"""
