"""The journal: append records to rolling data logs, read them back by place."""
