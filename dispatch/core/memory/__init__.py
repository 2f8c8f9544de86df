"""Which memory holds the messages of a destination, and what consumers and held-back groups cost."""
