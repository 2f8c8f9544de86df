"""Subscriptions: how they begin and end, where they read from, and patterns, which read many topics.

Read `open_subscriptions.py` first. dispatch/topics/state.py has a topic and its subscriptions as dispatch sees them.
"""
