"""Machine of a MUD client, and its parts."""
