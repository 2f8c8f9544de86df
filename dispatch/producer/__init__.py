"""Sending: from the arguments of a call to the journal, and what happens if a destination is full.

Begin with `sender.py`: it stores a single message for which there is room. Everything else is a Batch and goes through
`send_pipeline.py`: admit, store, wait for space, confirm.

- batching.py: the Batch, and how a `send_many` is divided into batches.
- encoding.py: what is stored of a message. lifetimes.py: when a message expires.
- slice_writer.py: writes messages with deduplication, and messages with times.
- sender_parts.py: the parts of a store that all senders share.
- space_lines.py: the lines of senders that wait for disk space. full_policy.py: what a full destination does instead of
  letting its senders wait.

docs/internals/dispatch-producer.md says why.
"""
