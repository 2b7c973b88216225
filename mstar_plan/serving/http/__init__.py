"""HTTP endpoints: the routes of OpenAI, any walk as JSON, and policies over a websocket, on one runtime."""
