"""The two kinds of open lane: one for messages in the journal, and one that spills to tmp-storage."""
