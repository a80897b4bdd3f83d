"""Benchmarks of the simulator on whatever device it finds: `fedbandit bench`. README.md says what they mean."""

SUITES = {  # in the order in which they run; each is a module with a function of this name
    "linalg": "eigh, eigvalsh, cholesky and qr by size and batch",
    "design": "G-optimal designs by arms, dimension, tolerance, batch and method",
    "compile": "time to trace, lower and compile, size of the programs, kernels on this device",
    "throughput": "client-rounds and federations a second of every algorithm",
    "growth": "time and memory against T, M, K, d, J and runs, with fitted exponents",
    "devices": "weak and strong scaling over devices",
    "accelerators": "kernels, bytes and memory of programs compiled for a GPU or TPU that is not here, and estimates",
    "peers": "other ways to write the same, side by side, and the limit that binds each algorithm",
}
