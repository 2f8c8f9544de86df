"""Messages in RAM beside the lists: which are kept, which holder is charged for them, and which leave first.

Read `message_cache.py` first, the base of both caches, then `pending_cache.py` and `head_queue_cache.py`.
`message_memory.py` is the memory that the messages of a destination are charged to, with its caches;
`memory_registry.py` finds it. None of it outlives the process: persistent messages are in the journal as well.
"""
