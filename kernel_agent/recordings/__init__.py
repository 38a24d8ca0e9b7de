"""Packaged recordings (``<name>/*.jsonl``), and the kernels and scripts from which the scripted ones are made."""
