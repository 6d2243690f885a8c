"""Someone's command, compose file, manifest or values -> what is wrong with them, where, why, and the fix with its number."""
