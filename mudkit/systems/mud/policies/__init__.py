"""What decides between device and cloud: utilities, policies, and what is learnt and shipped (Mobius 6)."""
