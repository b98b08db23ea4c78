"""Pure generators: named random streams, towns and their commuters, what phones report and ask."""
