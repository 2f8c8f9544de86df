"""Subscriptions: how they begin and end, where they read from, and patterns, which read many topics.

Read `open_subscriptions.py` first. A topic and its subscriptions as dispatch sees them are in `dispatch/topics/state.py`.
"""
