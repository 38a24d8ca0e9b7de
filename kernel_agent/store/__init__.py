"""The database: the only place a campaign's history lives. ``repository.Store`` is the way in."""
