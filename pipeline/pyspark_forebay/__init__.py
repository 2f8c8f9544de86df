"""By this name Spark finds the data source "forebay" by itself; see `forebay.pipeline`."""

from forebay.pipeline.source import ForebaySource as DefaultSource

__all__ = ["DefaultSource"]
