"""Algorithm 3 (Radiator 3.1) in four forms: to the letter, and for very many receivers."""
