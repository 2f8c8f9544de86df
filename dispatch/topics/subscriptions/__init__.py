"""Subscriptions: how they begin and end, where they read from, and patterns, which read many topics.

Read `subscription_registry.py` first. The state of a subscription is in dispatch/topics/subscription_state.py, and that
of a topic in dispatch/topics/topic_state.py.
"""
