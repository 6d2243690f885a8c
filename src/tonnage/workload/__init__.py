"""What the users do: how many at once, how long their sequences are, what they share."""
