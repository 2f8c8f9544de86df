"""The screen of a running store: what `forebay top` and `forebay demo` show."""
