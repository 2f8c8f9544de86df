"""Arrow kernels over data logs, free of Spark."""
