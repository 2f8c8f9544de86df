"""Sending: from the arguments of a call to the journal, and what happens if a destination is full.

Begin with `sender.py`: it stores a single message for which there is room. Everything else is a batch and goes through
`send_pipeline.py`: admit, store, wait for space, confirm. `batching.py` has batches, and divides a `send_many` into
them. `encoding.py` says what is stored of a message. `sender_parts.py` has what all senders share. `slice_writer.py`
writes messages with an id or with times, and `lifetimes.py` computes when a message expires.
If there is no room, `space_lines.py` has the lines for disk space, and `full_policy.py` does what the policy of a full
destination says. docs/internals/dispatch-producer.md says why.
"""
