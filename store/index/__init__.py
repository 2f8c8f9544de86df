"""The index: which messages are pending in each lane, and where each one lies.

Read `block.py` first, which has the places of 512 messages; then `destination_lane.py`, which is a row of blocks, and
`index.py`, which has all lanes. `block_cache.py` says which blocks are in RAM, `data_log_use.py` what they need of the
journal, `idle_lanes.py` what is left of a lane that has nothing. Of topics: `topic_lane.py` and `subscriptions.py`,
with `sequence_bitmap.py` for what is acknowledged out of order and `subscription_table.py` for subscriptions that
nobody uses. Beside the lanes: `due_times.py` and `put_off_lane.py` (when), `delivery_counts.py` (how often),
`deduplication.py` (which ids were there), `fingerprint.py` (which headers). docs/internals/store-index.md says why.
"""
