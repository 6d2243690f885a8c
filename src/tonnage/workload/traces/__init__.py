"""Readers of traffic logs: bytes to columns, whatever wrote them."""
