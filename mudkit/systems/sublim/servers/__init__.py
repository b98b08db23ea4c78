"""The machines of servers: the publish server and the access points with their agents (SUBLIM 3, 4)."""
