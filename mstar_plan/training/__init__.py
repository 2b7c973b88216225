"""Training of world models: collect episodes, train members, add a distance head, measure, save weights."""
