"""Bulk loads: import sets are staged beside a store and ingested when it is opened next."""
