"""The graph core: what a walk is, and where one request stands on it. Knows no model, no modality and no planner."""
