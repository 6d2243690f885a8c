"""Bytes, exactly: weights, cache, state, overhead, and the ledger that they add up to."""
