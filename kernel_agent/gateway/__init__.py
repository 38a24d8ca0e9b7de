"""The model proxy of the engine: budget, key, limits and journal. ``app.Gateway`` is the way in."""
