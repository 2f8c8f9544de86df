"""Consumers: take, settle, close; detection of slow ones.

Read `consumer.py` first, which is what a user has: `take`, then `ack`. `search.py` is a take that found nothing in RAM,
`settlements.py` all settling but the ack of a single message, `ending.py` how consumers drain and close, `waits.py` who
waits and is woken, `readiness.py` how on_ready and fileno are told, the latter by a `ready_signal.py`, `processing.py`
the threads of `process`. `options.py` checks what a `subscribe` asks for, `consumer_factory.py` makes the consumer, and
`consumer_registry.py` enters it where consumers are charged, watched and ranked. `slow.py` and `stuck.py` look at
consumers that stand still. docs/internals/dispatch-consumer.md has the states of a consumer, docs/internals/overview.md
the life of a message around it.
"""
