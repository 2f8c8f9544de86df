"""Queues, lanes, TargetLists and deliveries: the state under the state lock.

The packages, from the top down: `destinations` opens and closes queues. `redelivery` removes messages and brings them
back. `areas` fills the lists and hands out. `lanes` decides where an arrival goes. `lists` has the contents of a list,
`counting` the counters, `selector_groups` the members, `deliveries` the states of a message, and `memory` the charges.

Begin with `monitor.py` for the lock, `deliveries/delivery.py` for the states of a message, and `model.py` for the
classes that refer to each other. docs/internals/dispatch-core.md explains each file;
docs/internals/overview.md says who owns what.
"""
