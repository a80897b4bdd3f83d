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


def compiled(source: str, *more: str) -> ctypes.CDLL:
    """A C file of this folder, compiled and loaded; an OSError where no C compiler works."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise OSError("there is no C compiler (cc, gcc or clang)")
    path = Path(__file__).with_name(source)
    with tempfile.TemporaryDirectory() as folder:  # once loaded, the file is needed no more
        library = Path(folder) / path.with_suffix(".so").name
        flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC", *more]
        done = subprocess.run(
            [compiler, *flags, str(path), "-o", str(library), "-lm"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise OSError(f"{compiler} failed: {(done.stderr.strip().splitlines() or ['no message'])[0]}")
        return ctypes.CDLL(str(library))


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def linucb_c() -> Callable[..., np.ndarray]:
    """The compiled kernel as a function like `linucb_numpy`; an OSError where no C compiler works."""
    kernel = compiled("linucb_kernel.c").linucb

    def run(arms: np.ndarray, theta: np.ndarray, noise: np.ndarray, alpha: float = 0.5, lam: float = 1.0) -> np.ndarray:
        R, K, d = arms.shape
        truth = np.einsum("rkd,rd->rk", arms, theta)
        arrays = [np.ascontiguousarray(x, np.float32) for x in (arms, truth, noise)]
        regret = np.zeros(R, np.float32)
        pointers = [pointer(x) for x in (*arrays, regret)]
        floats = [ctypes.c_float(x) for x in (alpha, lam, 1.0)]
        kernel(R, K, d, noise.shape[1], *floats, *pointers)
        return regret

    return run


def distinct(rng: np.random.Generator, runs: int, pool: int, count: int) -> np.ndarray:
    """`count` of range(pool) without replacement for each run, in ascending order: repeated ones are drawn again."""
    index = np.sort(rng.integers(pool, size=(runs, count), dtype=np.int32), axis=1)
    while (repeated := index[:, 1:] == index[:, :-1]).any():
        index[:, 1:][repeated] = rng.integers(pool, size=repeated.sum(), dtype=np.int32)
        index.sort(axis=1)
    return index


def linucb_redrawn_numpy(
    pool: np.ndarray,
    theta: np.ndarray,
    noise: np.ndarray,
    arms: int,
    seed: int = 0,
    indices: np.ndarray | None = None,
    alpha: float = 0.5,
    lam: float = 1.0,
) -> np.ndarray:
    """R clients at once that see `arms` of the pool (A, d), drawn anew every round; theta (R, d), noise (R, T).

    The draws may be given, as `indices` (R, T, arms). Returns regrets (R,).
    """
    (R, T), (A, d), rng = noise.shape, pool.shape, np.random.default_rng(seed)
    run = np.arange(R)
    inverse = np.broadcast_to(np.eye(d, dtype=pool.dtype) / lam, (R, d, d)).copy()
    both = np.stack([np.zeros_like(theta), theta], axis=2)  # the estimate and the truth
    regret = np.zeros(R)
    for t in range(T):
        x = pool.take(distinct(rng, R, A, arms) if indices is None else indices[:, t], axis=0)
        widths = np.einsum("rkd,rkd->rk", x @ inverse, x)
        means, truth = np.moveaxis(x @ both, 2, 0)
        arm = np.argmax(means + alpha * np.sqrt(np.maximum(widths, 0)), axis=1)
        u = (inverse @ x[run, arm][:, :, None])[:, :, 0]
        gain = 1 / (1 + widths[run, arm])
        both[:, :, 0] += (gain * (truth[run, arm] + noise[:, t] - means[run, arm]))[:, None] * u
        inverse -= (gain[:, None] * u)[:, :, None] * u[:, None, :]
        regret += truth.max(axis=1) - truth[run, arm]
    return regret


def linucb_redrawn_c(*flags: str) -> Callable[..., np.ndarray]:
    """The compiled kernel as a function like `linucb_redrawn_numpy`; an OSError where no C compiler works.

    With the flag "-DALL_PRODUCTS" it does without the symmetry of V^-1.
    """
    kernel = compiled("linucb_redrawn_kernel.c", *flags).linucb_redrawn

    def run(
        pool: np.ndarray,
        theta: np.ndarray,
        noise: np.ndarray,
        arms: int,
        seed: int = 0,
        indices: np.ndarray | None = None,
        alpha: float = 0.5,
        lam: float = 1.0,
    ) -> np.ndarray:
        (R, T), (A, d) = noise.shape, pool.shape
        arrays = [np.ascontiguousarray(x, np.float32) for x in (pool, theta, noise)]
        given = None if indices is None else np.ascontiguousarray(indices, np.int32)
        regret = np.zeros(R, np.float32)
        pointers = [*map(pointer, arrays), given if given is None else pointer(given), pointer(regret)]
        kernel(R, A, arms, d, T, ctypes.c_float(alpha), ctypes.c_float(lam), ctypes.c_uint64(seed), *pointers)
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
