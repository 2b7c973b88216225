"""Vision-language-action policies: pi0, pi0.5 and SmolVLA as components and walks, and what reads their files."""
