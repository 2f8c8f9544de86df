"""Eviction: a slow subscriber of a topic loses messages, so that it holds no unbounded memory or disk.

Read `evictor.py` first. `arrival_order.py` says which waiting message came first, `latest_per_key.py` which ones have a
newer message of their key.
"""
