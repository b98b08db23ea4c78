"""Systems, policies and settings beside each other."""
