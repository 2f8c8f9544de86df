"""Opening a store: replay after a crash, repair, quarantine and verification."""
