"""Operations on whole queues: browse, find, move, purge, delete, pause, expire, dead-letter."""
