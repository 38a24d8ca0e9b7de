"""Revisions, oldest first by number."""
