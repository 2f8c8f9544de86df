"""How long a topic keeps messages that no subscription needs, and which messages a slow subscriber loses."""
