"""By this name Spark finds the data source "forebay" by itself; see `forebay.pipeline`."""
