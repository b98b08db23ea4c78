"""What the paper's evaluation needs: a simulator of one device and one topic, sweeps, sizing (Last hop 4)."""
