"""Long jobs over many stores: archive and restore data logs, tune memory limits. Loading is `pipeline.loading`."""
