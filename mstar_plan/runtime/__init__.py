"""The runtime: walks many requests at once, joins their calls into batches, and places components. Knows no model."""
