"""Which consumer of a queue gets which message: groups, priorities, exclusive consumers."""
