"""The memory that the messages of a destination are charged to, and the charges of consumers and held-back groups."""
