"""The surroundings of a store, which are handed in: time, locks, logging outside locks, progress, memory accounts."""
