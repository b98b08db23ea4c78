"""What shows that promises hold."""
