"""`python -m tilepress`."""

from .cli import main

main()
