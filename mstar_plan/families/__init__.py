"""What is served beside plans: each family's graph, the faces of its walks, and what wires may ask of it."""
