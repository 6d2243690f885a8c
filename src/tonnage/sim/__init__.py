"""The engine as arithmetic: a faithful scheduler over a paged pool, with the time of a step from the card's own figures."""
