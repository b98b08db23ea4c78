"""The machine of the server: it keeps clients, and sends aggregates along chains (Radiator 3, 4.2)."""
