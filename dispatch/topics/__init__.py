"""Topics: a message that is sent to a topic goes to each of its subscriptions.

Read `subscription_state.py` first: a subscription, which is to lists, caches and the loader what a queue is, and what
it knows of its topic. `topic_state.py` has the rest of the topic. `topic_layer.py` then names the owners in the order
in which they are made.

- registry.py: all topics, and how the state of one is made. topic_admin.py: deletes a topic.
  numbered_lanes.py: lanes by number, as records name them.
- topic_consumer_factory.py: makes the consumers of subscriptions. reader.py: reads a topic from a cursor on.
- selector_matches.py: which selectors match the arriving message, judged once for all subscriptions.
- `subscriptions`: how a subscription begins and ends, unsubscribe and seek, where a reader or a seek begins, the one
  consumer of many topics, and the acknowledgement of what the selector of a durable subscription does not match.
- `retention`: which messages a topic keeps though nobody needs them, and which messages a slow subscriber loses.
  arrivals.py knows which of these came first, newest_per_key.py which of them have a newer message of their key.
- shared_reading.py: what a list leaves to the cache that all subscriptions of its topic share.
- fan_out.py: where non-persistent messages go; fan_out_opener.py makes it. retained_messages.py: the messages
  that new subscriptions get first.

docs/internals/dispatch-topics.md says why a message is stored once, however many subscriptions there are.
"""
