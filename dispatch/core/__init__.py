"""Queues, lanes, TargetLists and deliveries: the state under the state lock.

From the top down:

- `destinations` opens and closes queues and topics.
- `redelivery` removes messages and brings them back.
- `confirmer.py` does what a write still owes, and `publisher.py` shows consumers what is written.
- `areas` makes lists, offers arrivals to them and dispatches from them.
- `memory` decides what stays in RAM.
- `lanes` has the two kinds of lane, and lets stored messages arrive.
- `model` has the classes that hold each other: destination, lane, TargetList, selector group, consumer, delivery.
- `lists` has what a TargetList is made of, and loads for it.
- `monitor.py` has the lock.

`owners.py`, above all of them, is what is handed to the packages above. docs/internals/dispatch-core.md explains each
file.
"""
