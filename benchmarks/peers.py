"""Other ways to simulate LinUCB, to measure against: a loop over objects, batched NumPy, a kernel in C."""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np


class ArmObject:
    """An arm as the public conversational-bandit code has it: an object with a feature vector."""

    def __init__(self, features):
        self.features = features


class LinUCBObject:
    """A user's learner as that code has it: matrices, inverted anew after every reward."""

    def __init__(self, dim, lam, alpha):
        self.A, self.b = lam * np.eye(dim), np.zeros(dim)
        self.inverse, self.theta, self.alpha = np.linalg.inv(self.A), np.zeros(dim), alpha

    def decide(self, pool):
        best, chosen = -np.inf, None
        for arm in pool:
            mean = np.dot(self.theta, arm.features)
            width = np.sqrt(np.dot(np.dot(arm.features, self.inverse), arm.features))
            if mean + self.alpha * width > best:
                best, chosen = mean + self.alpha * width, arm
        return chosen

    def update(self, features, reward):
        self.A += np.outer(features, features)
        self.b += reward * features
        self.inverse = np.linalg.inv(self.A)
        self.theta = np.dot(self.inverse, self.b)


def linucb_objects(arms, theta, noise, alpha=0.5, lam=1.0):
    """One client, T = len(noise) rounds; returns the regret."""
    learner, pool = LinUCBObject(arms.shape[1], lam, alpha), [ArmObject(x) for x in arms]
    best, regret = max(np.dot(a.features, theta) for a in pool), 0.0
    for z in noise:
        arm = learner.decide(pool)
        mean = np.dot(arm.features, theta)
        learner.update(arm.features, mean + z)
        regret += best - mean
    return regret


def linucb_numpy(arms, theta, noise, alpha=0.5, lam=1.0):
    """R clients at once: arms (R, K, d), theta (R, d), noise (R, T); rank-one updates. Returns regrets (R,)."""
    R, K, d = arms.shape
    run = np.arange(R)
    truth = np.einsum("rkd,rd->rk", arms, theta)
    inverse = np.broadcast_to(np.eye(d, dtype=arms.dtype) / lam, (R, d, d)).copy()
    means, widths = np.zeros((R, K), arms.dtype), np.full((R, K), 1 / lam, arms.dtype)
    regret, best = np.zeros(R), truth.max(axis=1)
    for t in range(noise.shape[1]):
        arm = np.argmax(means + alpha * np.sqrt(np.maximum(widths, 0)), axis=1)
        u = (inverse @ arms[run, arm][:, :, None])[:, :, 0]
        s = (arms @ u[:, :, None])[:, :, 0]
        gain = 1 / (1 + widths[run, arm])
        step = gain * (truth[run, arm] + noise[:, t] - means[run, arm])
        means += step[:, None] * s
        widths -= gain[:, None] * s**2
        inverse -= gain[:, None, None] * u[:, :, None] * u[:, None, :]
        regret += best - truth[run, arm]
    return regret


def linucb_c():
    """The compiled kernel as a function like `linucb_numpy`, or None where there is no gcc."""
    if shutil.which("gcc") is None:
        return None
    source = Path(__file__).with_name("linucb_kernel.c")
    library = Path(tempfile.mkdtemp()) / "linucb_kernel.so"
    flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(library), "-lm"], check=True)
    kernel = ctypes.CDLL(str(library)).linucb

    def run(arms, theta, noise, alpha=0.5, lam=1.0):
        R, K, d = arms.shape
        truth = np.einsum("rkd,rd->rk", arms, theta)
        arrays = [np.ascontiguousarray(x, np.float32) for x in (arms, truth, noise)]
        regret = np.zeros(R, np.float32)
        pointers = [x.ctypes.data_as(ctypes.c_void_p) for x in (*arrays, regret)]
        floats = [ctypes.c_float(x) for x in (alpha, lam, 1.0)]
        kernel(R, K, d, noise.shape[1], *floats, *pointers)
        return regret

    return run
