"""Read-ahead: raise the watermark of TargetLists, warm the HeadQueueCache."""
