"""What is served beside plans: each family's graph with its faces (typed walks) and abilities (what wires ask of it)."""
