"""Sending: from the arguments of a call to the journal, and what a full destination does.

Read `sender.py` first: it encodes, and stores one message for which there is room. All else is a batch, which goes
through `send_pipeline.py`: admit, store, wait for space, confirm. `producers.py` has what all senders share,
`slice_writer.py` writes messages whose ids count once or that have times, and `lifetimes.py` says when a message
expires. Where there is no room, `space.py` has the lines for disk, and `full_policy.py` does what the policy of a full
destination says. docs/internals/dispatch-producer.md says why.
"""
