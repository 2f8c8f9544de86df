"""Topics: a message that is sent to a topic goes to each of its subscriptions.

| room | has |
|---|---|
| `state` | topics and subscriptions in RAM, and the way of an arriving message: read it first |
| `subscriptions` | how a subscription begins and ends; cursors; patterns; acks of what a selector does not match |
| `eviction` | which messages a slow subscriber loses |

The files beside the rooms each work on whole topics:

- topic_layer.py: makes all owners, in the order in which they need each other.
- topic_registry.py: finds topics by name and number. topic_admin.py: deletes a topic.
- topic_retention.py: which messages a topic keeps though no subscription needs them.
- retained_messages.py: the messages that each new subscription gets first.
- fan_out_opener.py: makes a topic ready for non-persistent messages.
- topic_consumer_factory.py: makes the consumers of topics. reader.py: what a user reads a topic with, without acks.
- numbered_lanes.py: finds a lane by the number that records have, in queues and topics.

docs/internals/dispatch-topics.md says why a message is stored once, however many subscriptions there are.
"""
