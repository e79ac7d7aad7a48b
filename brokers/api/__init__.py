"""HTTP: the raw door for the hot routes, DRF for the rest, one route table for both."""
