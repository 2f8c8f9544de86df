"""Queues, lanes, TargetLists and deliveries: the state under the state lock.

The packages, from the top down: `destinations` opens and closes queues. `redelivery` removes messages and brings them
back. `publication` syncs what was written and shows it to consumers. `areas` fills the lists and hands out. `memory`
decides what stays in RAM. `lanes` decides where an arrival goes. `lifecycle` says what is open and counts, `lists` has
the contents of a list, `selector_groups` the members, `deliveries` the states of a message.

Three files are about all of them: `monitor.py` has the lock, `model.py` the classes that refer to each other,
`owners.py` what is handed to the packages above. docs/internals/dispatch-core.md explains each file;
docs/internals/owners.md says who owns what.
"""
