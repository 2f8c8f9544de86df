"""Spark: session, data source, stream, and the questions as DataFrames."""
