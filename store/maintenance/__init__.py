"""Maintenance of the journal: cleanup, archive, leases and relocation."""
