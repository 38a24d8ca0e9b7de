"""The soundness of a problem, measured: a jailed process tries null answers, ablations and noise on it."""
