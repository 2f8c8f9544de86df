"""Requests of other processes to an open store, through its admin socket."""
