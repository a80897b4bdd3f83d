"""Other ways to do the same, to measure against: LinUCB as a loop over objects, in NumPy, in C; other designs."""

import ctypes
import importlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np

import fedbandit_jax as fb


class ArmObject:
    """An arm as the public conversational-bandit code has it: an object with a feature vector."""

    def __init__(self, features: np.ndarray) -> None:
        self.features = features


class LinUCBObject:
    """A user's learner as that code has it: matrices, inverted anew after every reward."""

    def __init__(self, dim: int, lam: float, alpha: float) -> None:
        self.A, self.b = lam * np.eye(dim), np.zeros(dim)
        self.inverse, self.theta, self.alpha = np.linalg.inv(self.A), np.zeros(dim), alpha

    def decide(self, pool: list[ArmObject]) -> ArmObject:
        best, chosen = -np.inf, pool[0]
        for arm in pool:
            mean = np.dot(self.theta, arm.features)
            width = np.sqrt(np.dot(np.dot(arm.features, self.inverse), arm.features))
            if mean + self.alpha * width > best:
                best, chosen = mean + self.alpha * width, arm
        return chosen

    def update(self, features: np.ndarray, reward: float) -> None:
        self.A += np.outer(features, features)
        self.b += reward * features
        self.inverse = np.linalg.inv(self.A)
        self.theta = np.dot(self.inverse, self.b)


def linucb_objects(
    arms: np.ndarray, theta: np.ndarray, noise: np.ndarray, alpha: float = 0.5, lam: float = 1.0
) -> float:
    """One client, T = len(noise) rounds; returns the regret."""
    learner, pool = LinUCBObject(arms.shape[1], lam, alpha), [ArmObject(x) for x in arms]
    best, regret = max(np.dot(a.features, theta) for a in pool), 0.0
    for z in noise:
        arm = learner.decide(pool)
        mean = np.dot(arm.features, theta)
        learner.update(arm.features, mean + z)
        regret += best - mean
    return regret


def linucb_numpy(
    arms: np.ndarray, theta: np.ndarray, noise: np.ndarray, alpha: float = 0.5, lam: float = 1.0
) -> np.ndarray:
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


def linucb_c() -> Callable[..., np.ndarray]:
    """The compiled kernel as a function like `linucb_numpy`; an OSError where no C compiler works."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise OSError("there is no C compiler (cc, gcc or clang)")
    source = Path(__file__).with_name("linucb_kernel.c")
    folder = tempfile.TemporaryDirectory()
    library = Path(folder.name) / "linucb_kernel.so"
    flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
    done = subprocess.run(
        [compiler, *flags, str(source), "-o", str(library), "-lm"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"{compiler} failed: {(done.stderr.strip().splitlines() or ['no message'])[0]}")
    kernel = ctypes.CDLL(str(library)).linucb
    folder.cleanup()  # loaded: the file is needed no more

    def run(arms: np.ndarray, theta: np.ndarray, noise: np.ndarray, alpha: float = 0.5, lam: float = 1.0) -> np.ndarray:
        R, K, d = arms.shape
        truth = np.einsum("rkd,rd->rk", arms, theta)
        arrays = [np.ascontiguousarray(x, np.float32) for x in (arms, truth, noise)]
        regret = np.zeros(R, np.float32)
        pointers = [x.ctypes.data_as(ctypes.c_void_p) for x in (*arrays, regret)]
        floats = [ctypes.c_float(x) for x in (alpha, lam, 1.0)]
        kernel(R, K, d, noise.shape[1], *floats, *pointers)
        return regret

    return run


def textbook_frank_wolfe(arms: np.ndarray, tol: float) -> np.ndarray:
    """G-optimal weights: step toward the arm of the largest g = a' V^-1 a, V inverted anew every time."""
    K, d = arms.shape
    weights = np.full(K, 1 / K)
    while True:
        inverse = np.linalg.inv(arms.T @ (weights[:, None] * arms))
        g = ((arms @ inverse) * arms).sum(axis=1)
        best = np.argmax(g)
        if g[best] <= (1 + tol) * d:
            return weights
        gamma = (g[best] / d - 1) / (g[best] - 1)
        weights *= 1 - gamma
        weights[best] += gamma


def convex_solver(arms: np.ndarray) -> np.ndarray:
    """G-optimal weights by Kiefer and Wolfowitz's equivalent, max log det V(pi), as a model in cvxpy."""
    import cvxpy

    weights = cvxpy.Variable(len(arms), nonneg=True)
    information = arms.T @ cvxpy.diag(weights) @ arms
    cvxpy.Problem(cvxpy.Maximize(cvxpy.log_det(information)), [cvxpy.sum(weights) == 1]).solve()
    return np.asarray(weights.value)


def oracle() -> ModuleType:
    """The tests' NumPy oracle, which a checkout has and a wheel has not."""
    root = Path(fb.__file__).parents[1]
    if not (root / "tests" / "reference").is_dir():
        raise OSError("the NumPy oracle is in tests/reference of a checkout, and this is an installed package")
    if str(root) not in sys.path:
        sys.path.append(str(root))
    return importlib.import_module("tests.reference")
