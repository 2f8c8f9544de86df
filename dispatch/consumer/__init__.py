"""Consumers: take, settle, close; detection of slow and stuck ones.

Read `consumer.py` first, which is what a user has: `take`, then `ack`. docs/internals/dispatch-consumer.md has the
states of a consumer, docs/internals/overview.md the life of a message around it.

- search.py: a take that found nothing in RAM. settlements.py: all settling but the ack of a single message.
- flow_controlled_consumer.py: how much a consumer may take, and who is woken then; consumer.py adds what a user calls.
- waits.py: who waits for a consumer, and how they are woken. readiness.py: how on_ready and fileno tell a host to take;
  fileno uses a ready_signal.py.
- ending.py: how consumers drain and close. ack_reminder.py: warns of consumers that close and never acknowledged.
- processing.py: the threads of `process`.
- options.py: checks the arguments of `subscribe`. consumer_factory.py: makes the consumer. consumer_statistics.py: its
  figures. consumer_registry.py: charges, watches and ranks consumers.
- slow_consumers.py, stuck_consumers.py: look for consumers that stand still.
"""
