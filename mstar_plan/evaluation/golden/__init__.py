"""Golden parity: outputs of published implementations, compared number by number with ours."""
