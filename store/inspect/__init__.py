"""Read-only views of a store: facts, dump, and an open beside a live owner."""
