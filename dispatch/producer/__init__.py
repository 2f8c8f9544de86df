"""Sending: from the arguments of a call to the journal, and what happens if a destination is full.

Begin with `sender.py`: it encodes messages, and stores a single message for which there is room. Everything else is a
batch and goes through `send_pipeline.py`: admit, store, wait for space, confirm. `sender_parts.py` has what all senders
share. `slice_writer.py` writes messages with an id or with times, and `lifetimes.py` computes when a message expires.
If there is no room, `space_lines.py` has the lines for disk space, and `full_policy.py` does what the policy of a full
destination says. docs/internals/dispatch-producer.md says why.
"""
