"""HTTP: the raw door for the hot routes, DRF for the rest, one route table for both."""

VERSION = "0.1.0"
