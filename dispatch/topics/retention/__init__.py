"""How long a topic keeps messages: those that nobody needs, and those of a subscriber that has too many."""
