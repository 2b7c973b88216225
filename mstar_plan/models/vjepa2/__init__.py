"""V-JEPA 2 and V-JEPA 2-AC (Assran et al. 2025, arXiv 2506.09985): encoder, predictors, planning with them."""
