"""Operations on whole queues and topics: browse, find, move, purge, delete, pause, expire, dead-letter."""
