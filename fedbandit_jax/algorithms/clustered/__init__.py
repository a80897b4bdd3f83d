"""Federated learners that find out which clients serve alike users, and share among these."""
