"""Distributions: which consumer of a queue gets which message.

Read `core.model.distribution_roles` first: it says what a distribution decides and what it is told. Almost all queues
have the distribution of `ordinary.py`. The one of `assigning.py` and `assignments.py` is the only hard one.

- distribution_chooser.py chooses the distribution of each destination.
- distribution_parts.py has the objects with which each distribution is made.
- ordinary.py: the consumers of a selector group share its lists, and the next take gets the next message.
- assigning.py: consumers own message groups and have priorities. assignments.py assigns messages to consumers,
  message_groups.py knows the owners of groups and which groups are halted, message_group_names.py the group of each
  message, precedence.py the order of consumers by priority, rebalancing.py when an owner loses groups, and
  idle_consumers.py which consumers found nothing.
- pattern.py: the one consumer of a wildcard subscription gets messages topic by topic.
- exclusive.py: one consumer gets everything. It decides who may take at all, so it works with each distribution.
"""
