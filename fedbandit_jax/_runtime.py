"""Protection from three faults of jaxlib's CPU backend, the set-up of CPU devices, and compiled programs on disk.

1. Deadlock. XLA runs the blocks of a batched LAPACK call on the same thread pool on which the call
   itself waits. When as many calls are in flight as the pool has threads, nothing moves any more.
   The environment variable NPROC sizes the pool when the backend starts.
2. Heap corruption in batched `eigh`, and 3. wrong NumPy products beside a running `eigh`, both only
   when OpenBLAS itself is multi-threaded (jax issues 39292 and 38056).

`protect` runs on import. For a backend that another module started earlier with a small pool the
package stays on one device, and its programs never have two LAPACK calls in flight on one device.
"""

import os
import warnings
from importlib.metadata import version
from pathlib import Path

import jax
import threadpoolctl
from jax.experimental.compilation_cache import compilation_cache

MIN_POOL = 16
CACHE_SWITCH = "FEDBANDIT_COMPILE_CACHE"


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def l2_cache() -> int:
    """Bytes of one core's L2 cache; 1 MiB where the system does not tell."""
    found = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
    size = found.read_text().strip() if found.is_file() else "1024K"
    return int(size[:-1]) * 1024 if size.endswith("K") else 2**20


def backend_started() -> bool:
    """Has JAX started its backend in this process?"""
    from jax._src import xla_bridge  # JAX has no public way to ask

    return bool(xla_bridge.backends_are_initialized())


def _pool_size() -> int:
    requested = os.environ.get("NPROC", "")
    return int(requested) if requested.isdigit() else cores()


def protect() -> None:
    """Make the faults above impossible, or say what is in the way."""
    if os.environ.setdefault("OPENBLAS_NUM_THREADS", "1") != "1":
        warnings.warn(
            f"OPENBLAS_NUM_THREADS={os.environ['OPENBLAS_NUM_THREADS']} is ignored: fedbandit_jax limits BLAS to one "
            "thread, because jaxlib corrupts memory in a batched eigh when OpenBLAS has several",
            stacklevel=3,
        )
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
    # The variable is read when a BLAS is loaded; those that NumPy or SciPy already loaded are told directly.
    threadpoolctl.threadpool_limits(limits=1, user_api="blas")

    wanted = max(MIN_POOL, 2 * cores())
    if not backend_started():
        os.environ["NPROC"] = str(max(wanted, _pool_size()))
    elif _pool_size() < wanted and jax.default_backend() == "cpu":
        _Late.pool = True
        warnings.warn(
            "JAX had already started its CPU backend when fedbandit_jax was imported: simulations run on one "
            "device only; import fedbandit_jax before the first JAX computation to use all cores",
            stacklevel=3,
        )


class _Late:
    """Was the package imported too late to size the thread pool?"""

    pool = False


def has_large_pool() -> bool:
    """True if several batched LAPACK calls may be under way at a time."""
    return not _Late.pool


def devices() -> list[jax.Device]:
    """The devices to spread runs over; on CPU one per core, unless the backend has been started or told otherwise."""
    told = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not backend_started() and not told and jax.config.values["jax_num_cpu_devices"] in (-1, 1):
        jax.config.update("jax_num_cpu_devices", cores())
    local = jax.local_devices()
    return local[:1] if _Late.pool else local


def memory_of_machine() -> float:
    """Bytes that this machine has, or that its control group lets this process have."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else float("inf")
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            return min(physical, float(file.read()))
    except (OSError, ValueError):  # no control groups, or no limit: "max"
        return physical


def cache_folder() -> Path | None:
    """Where compiled programs are kept, in the user's cache; None if they are not."""
    if os.environ.get(CACHE_SWITCH, "true").lower() in ("0", "false", "f", "no", "n", "off"):
        return None
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedbandit_jax"
    except RuntimeError:  # a user without a home
        return None


def keep_compiled_programs() -> None:
    """Let JAX keep what it compiles on disk as well, unless it has been told where or not to.

    The programs of sweeps are kept by `engine.executables`, too, which finds them sooner. Each release has a folder of
    its own: what JAX finds there cannot be kept anew.
    """
    folder = cache_folder()
    if folder is None or jax.config.values["jax_compilation_cache_dir"]:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder / f"jax-{version('fedbandit-jax')}"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    compilation_cache.reset_cache()  # JAX looks for one once only, at its first compilation
