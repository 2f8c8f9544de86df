"""Spark finds the data source "forebay" by the name of this package; see `forebay.pipeline`."""

from forebay.pipeline.spark.source import ForebaySource as DefaultSource

__all__ = ["DefaultSource"]
