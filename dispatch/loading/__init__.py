"""Loading: bring messages from disk into RAM before a consumer asks for them.

Read `EagerLoader` in `eager.py` in the order of a load: `step` chooses the list that runs lowest, `begin` chooses its
next messages (`chooser.py`), takes those that the caches have (`cache_filler.py`) and reserves memory for the others
(`load_memory.py`), `read` reads them outside the lock (`reading.py`), and `install` puts them into the list
(`installing.py`). `core.areas.load_requests` knows which lists want a load. `warmer.py` does the same for queues that
nobody reads yet, whose first messages the HeadQueueCache keeps. docs/internals/dispatch-loading.md explains both.
"""
