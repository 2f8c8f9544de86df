"""Bulk loads: import sets are staged beside a store and ingested at its next open."""
