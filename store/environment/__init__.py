"""What surrounds the store and is handed in: time, locks, logging outside locks, progress, and who pays for memory."""
