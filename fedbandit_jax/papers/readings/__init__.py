"""FedConPE under every reading of what its paper leaves open, and what came of it."""
