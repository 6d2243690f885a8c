"""A plan -> what you would run: commands, compose files, units; every flag with its reason."""
