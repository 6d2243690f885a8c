"""`python -m tonnage`."""

from tonnage.cli import main

main()
