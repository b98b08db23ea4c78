"""What the paper's evaluation needs: PICU and other policies of its introduction (SUBLIM 1, 5)."""
