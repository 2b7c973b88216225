"""Training of a small V-JEPA 2-AC: an encoder that is distilled, then frozen; a predictor over token grids."""
