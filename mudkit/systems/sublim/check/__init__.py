"""The checker of policies: what cannot mean what it says is refused when a policy is set."""
