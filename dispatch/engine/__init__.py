"""The composition root of an open store, its background work, resize and statistics."""
