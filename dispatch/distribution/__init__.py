"""Distributions: which consumer of a queue gets which message.

Read `core.model.distribution_roles` first, which says what a distribution decides and what it is told. Then
`ordinary.py`, that of almost all queues; then `assignments.py` and `assigning.py`, the only one that is hard.

- distribution_chooser.py chooses which destination has which of these.
- distribution_parts.py has what each of them is made with.
- ordinary.py: the consumers of a selector group share its lists, and whoever takes gets the next message.
- assigning.py: message groups and consumer priorities. assignments.py says who has what, message_groups.py who owns
  groups and what stands still, message_group_names.py which group a message has, precedence.py who comes first,
  rebalancing.py when an owner loses groups, idle_consumers.py who found nothing.
- pattern.py: topic by topic, for the one consumer of a pattern.
- exclusive.py: one consumer gets everything. It says who takes at all, so it goes with each of the others.
"""
