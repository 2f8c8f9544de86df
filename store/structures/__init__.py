"""Data structures that know nothing of messages: sets of numbers as bits and as runs, and a histogram of durations."""
