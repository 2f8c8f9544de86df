"""Loading: bring messages from disk into RAM before a consumer asks for them.

Read `EagerLoader` in `eager.py` in the order of a load: `step` chooses the list that starves first, `begin` chooses its
next messages, `read` reads them outside the lock, and `install` puts them into the list. `core.areas.load_requests`
knows which lists want a load. `warmer.py` does the same for queues that nobody reads yet, whose first messages the
HeadQueueCache keeps. docs/internals/dispatch-loading.md explains both.
"""
