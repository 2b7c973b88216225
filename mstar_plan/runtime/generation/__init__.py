"""Writing token by token: requests join and leave between steps, over one bounded pool of attention pages."""
