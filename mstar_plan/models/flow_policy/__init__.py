"""Small flow policies on pictures: from what is seen and what is wanted to chunks of actions."""
