"""Subscriptions: how they begin and end, where they read from, and patterns, which read many topics.

Read `open_subscriptions.py` first. dispatch/topics/topic_state.py has the state of a topic and of its subscriptions.
"""
