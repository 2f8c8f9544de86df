"""The two kinds of lane: messages in the journal, and messages in RAM or tmp-storage.

Read `persistent_lane_state` first.
"""
