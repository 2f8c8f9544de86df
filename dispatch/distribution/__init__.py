"""Delivery rules: which consumer of a queue gets which message.

`core.model.Distribution` says what such a rule decides, and what it is told; every queue has one.

- ordinary.py: the consumers of a group share its lists, and whoever takes gets the next message.
- grouped.py: message groups and consumer priorities. message_groups.py has the owners of groups and what stands
  still; idle_consumers.py those that found nothing.
- turns.py: topic by topic, for the one consumer of a wildcard subscription.
- exclusive.py: one consumer gets everything. It says who takes at all, so it goes with each of the others.
"""
