"""Training of flow policies: demonstrations of the packaged planner, and behaviour cloning by flow matching."""
