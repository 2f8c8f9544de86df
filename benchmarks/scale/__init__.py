"""Scale curves: what a message costs, what the process needs and how long recovery takes, as one thing grows.

Each point comes from a fresh process and an empty directory: a store of
64 MiB, `sync="never"`, one thread. All but one of its dimensions stay.
"""
