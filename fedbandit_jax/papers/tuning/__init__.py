"""Tuning: trials of every algorithm with an equal budget, what they found, and its figures."""
