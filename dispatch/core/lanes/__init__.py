"""The two kinds of open lane: one whose messages the journal has, and one that spills to tmp-storage."""
