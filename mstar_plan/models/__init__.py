"""World models: the protocol that planning sees, the families that keep it, and a registry of names."""
