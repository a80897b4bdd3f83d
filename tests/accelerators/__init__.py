"""Programs as XLA compiles them for accelerators that are not here: `make test-accelerators`."""
