"""Checkpoints, which bring the index on disk up to the journal, and the record that says how far that is durable."""
