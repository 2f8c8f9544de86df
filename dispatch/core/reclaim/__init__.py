"""Reclaim: how an open store divides its RAM among lists and caches, and who gives back first."""
