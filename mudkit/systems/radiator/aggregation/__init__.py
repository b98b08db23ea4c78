"""What is let go together: aggregability, joins, and the places that they look at (Radiator 2.2, 3.1)."""
