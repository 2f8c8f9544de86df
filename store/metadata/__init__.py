"""The metadata store: the index on disk, in SQLite or in memory."""
