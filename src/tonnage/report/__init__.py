"""Any result -> terminal, or the value that is encoded as JSON."""
