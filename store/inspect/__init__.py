"""Read-only views of a store: facts, dump, and opening beside a live owner."""
