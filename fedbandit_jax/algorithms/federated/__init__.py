"""Learners whose clients meet through a server."""
