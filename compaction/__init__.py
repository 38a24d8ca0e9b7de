"""Keeping a long conversation within a token budget: neutral histories, strategies, and their OpenHands condenser."""
