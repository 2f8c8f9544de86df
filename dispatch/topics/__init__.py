"""Topics: what is sent to one goes to each of its subscriptions.

Read `state.py` first: a topic as dispatch sees it, and a subscription, which is to the lists, caches and the loader
what a queue is. `topic_owners.py` then names the owners in the order in which they are made.

- registry.py: all topics. topic_maker.py: how the state of one is made. topic_admin.py: how one is deleted.
  numbered_lanes.py: lanes by number, as records name them.
- consumers.py: who reads their subscriptions. reader.py: reads from a cursor.
- `subscriptions`: how a subscription begins and ends, unsubscribe and seek, where a reader or a seek begins, the one
  consumer of many topics, and the acknowledgement of what the selector of a durable subscription does not match.
- `retention`: what a topic keeps though nobody needs it, and which messages go when a subscriber has too many.
  arrivals.py says which came first, latest_keys.py which of them have a newer one of their key.
- fan_outs.py: where non-persistent messages go. retained.py: what a topic gives to new subscriptions first.

docs/internals/dispatch-topics.md says why a message is stored once, however many subscriptions there are.
"""
