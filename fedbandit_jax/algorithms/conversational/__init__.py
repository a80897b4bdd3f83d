"""Learners that ask: about arms or key terms, each client alone."""
