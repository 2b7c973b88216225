"""Planning on world models: planners, objectives, the plan walk, the solver and the receding-horizon controller."""
