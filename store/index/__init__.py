"""The index: which messages are pending in each lane, and where each one is.

Begin with `block.py`, which has the places of 512 messages. Then read `destination_lane.py`, a row of blocks, and
`index.py`, which has all lanes. `block_cache.py` decides which blocks are in RAM, and `checkpoint_need.py` when enough
has changed. `data_log_use.py` counts what needs a data log. `idle_lanes.py` has what remains of empty lanes. For topics
there are `topic_lane.py` and `subscriptions.py`, with `sequence_bitmap.py` for messages acknowledged out of order and
`subscription_table.py` for subscriptions that nobody uses. Other tables are `due_times.py` and `delayed_lane.py` (times
of messages), `delivery_counts.py` (how often each was delivered), `deduplication.py` (known ids), and `fingerprint.py`
(headers in a block). docs/internals/store-index.md says why.
"""
