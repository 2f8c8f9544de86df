"""By this name Spark finds the data source "forebay" by itself; see `forebay.pipeline`."""

from forebay.pipeline.spark.source import ForebaySource as DefaultSource

__all__ = ["DefaultSource"]
