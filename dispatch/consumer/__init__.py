"""Consumers: take, settle, close; detection of slow ones."""
