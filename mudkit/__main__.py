"""``python -m mudkit``."""

from mudkit.cli import main

main()
