"""Figures over time: messages, links, energy, histories, signals."""
