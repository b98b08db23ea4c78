"""What the paper's evaluation needs: applications, and traces that are played without a fleet."""
