"""Queues, lanes, TargetLists and deliveries: the state under the one lock."""
