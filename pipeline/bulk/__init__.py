"""Long jobs over many stores: archive and restore data logs, tune memory limits. `pipeline.loading` loads messages."""
