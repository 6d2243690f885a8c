"""tonnage: how many GPUs, which settings, will it hold. Offline, as the engine would really allocate."""
