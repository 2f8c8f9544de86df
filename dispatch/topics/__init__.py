"""Topics: what is sent to one goes to each of its subscriptions.

Read `state.py` first: a topic as dispatch sees it, and a subscription, which is to the lists, caches and the loader
what a queue is. `topic_owners.py` then names the owners in the order in which they are made.

- registry.py: all topics. topic_maker.py: how the state of one is made. topic_admin.py: how one is deleted.
- open_subscriptions.py: how a subscription begins and ends. consumers.py: who reads them. numbered_lanes.py: their
  lanes by number, as records name them.
- subscription_admin.py: unsubscribe and seek. cursors.py: where a reader or a seek begins; reader.py reads from there.
- patterns.py: the one consumer of many topics. fan_outs.py: where non-persistent messages go.
- topic_retention.py: what a topic keeps though nobody needs it. retained.py: what it gives to new subscriptions first.
- eviction.py: which messages go when a subscriber has too many. arrivals.py says which came first, latest_keys.py which
  of them have a newer one of their key.
- unmatched.py: acknowledges for a durable subscription what its selector does not match.

docs/internals/dispatch-topics.md says why a message is stored once, however many subscriptions there are.
"""
