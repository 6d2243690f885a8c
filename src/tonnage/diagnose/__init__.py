"""Someone's log -> what happened, why, what to do: each start, its measured ledger, its first cause."""
