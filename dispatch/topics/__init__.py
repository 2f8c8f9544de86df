"""Topics: what is sent to one goes to each of its subscriptions.

Read `state.py` first: a topic as dispatch sees it, and a subscription, which is to the lists, caches and the loader
what a queue is. `registry.py` then has all topics, who subscribes and unsubscribes, and what is done unasked.

- patterns.py: the one consumer of many topics. cursors.py: where a reader or a seek begins; reader.py reads from there.
- eviction.py: which messages go when a subscriber has too many. arrivals.py says which came first, latest_keys.py which
  of them have a newer one of their key.
- unmatched.py: acknowledges for a durable subscription what its selector does not match.

docs/internals/dispatch-topics.md says why a message is stored once, however many subscriptions there are.
"""
