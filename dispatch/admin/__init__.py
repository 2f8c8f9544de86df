"""What is done with whole queues: browse, find, move, purge, delete, pause, expire, dead-letter."""
