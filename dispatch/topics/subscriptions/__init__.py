"""Subscriptions: how they begin and end, where they read from, and patterns, which read many topics.

Read `subscription_registry.py` first. The state of a subscription is in dispatch/topics/state/subscription_state.py.

- subscription_admin.py: `unsubscribe` and `seek`. cursors.py: the places where a seek or a reader begins.
- patterns.py: one consumer of all topics that match a wildcard.
- unmatched.py: acknowledges messages that the selector of a durable subscription does not match.
- unrecorded.py: settles messages of subscriptions without a name, which have no records.
"""
