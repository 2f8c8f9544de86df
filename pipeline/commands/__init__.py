"""The subcommands of `forebay pipeline`."""
