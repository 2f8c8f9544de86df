"""Sending: one pipeline from arguments to journal, and what a full destination does."""
