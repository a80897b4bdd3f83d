"""From a grid of settings to finished runs: cells, batches, compiled programs, stores; `simulate` and `sweep`."""
