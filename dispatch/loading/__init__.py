"""Loading: what moves messages from disk to RAM before somebody asks for them.

Read `EagerLoader` in `eager.py` in the order of a load: `step` chooses the list that starves first, `begin` what comes
next of it, `read` reads that outside the lock, `install` puts it into the list. `core.load_requests` knows which lists
are to be loaded. `warmer.py` does the same for queues that nobody reads yet, whose heads the HeadQueueCache keeps.
docs/internals/dispatch-core.md has the watermarks that a load is for.
"""
