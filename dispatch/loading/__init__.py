"""Loading: bring messages from disk into RAM before a consumer asks for them.

Read `EagerLoader` in `eager_loader.py` in the order of a load:

- `step` takes the list that runs lowest. `core.areas.load_requests` knows which lists want a load.
- `begin` chooses the next messages of the list (`chooser.py`), takes what the caches have of them (`cache_filler.py`),
  and reserves memory for the rest (`load_memory.py`).
- `read` reads the rest outside the lock (`reading.py`).
- `install` puts the messages into the list (`installing.py`).

`warmer.py` loads for queues that no consumer reads yet: the HeadQueueCache keeps their first messages.
docs/internals/dispatch-loading.md explains both; docs/internals/cache.md says who decides what may be in RAM.
"""
