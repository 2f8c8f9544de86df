"""Scale curves: what a message costs, what the process needs and how long recovery takes, as one thing grows.

Each point comes from a fresh process and an empty directory, with a store of 64 MiB, `sync="never"` and one thread.
Along a curve, one dimension changes and all others stay.
"""
