"""Compiled programs kept on disk, and found there before anything is traced.

JAX's own cache finds a program by its lowered text, so tracing and lowering are paid at every start. Here the key is
all that this text follows from: the package's files, the code of user-defined classes, shapes, words of
hyperparameters, compiler options, releases, settings of JAX, and the machine. An entry that is damaged or foreign is a
miss, never an error. A program whose code cannot be read as a text, such as one with an object in a closure, is left to
JAX's cache.
"""

import hashlib
import importlib.metadata
import os
import pickle
import platform
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import serialize_executable

from fedbandit_jax import _files, _runtime
from fedbandit_jax._parameters import Configured, static_fields
from fedbandit_jax.clocks.variants import Variants
from fedbandit_jax.engine.code import PLAIN, Reader, is_package

LIMIT = 2 * 10**9  # bytes of all entries
SUFFIX = ".program"
IRRELEVANT = (
    "cache",
    "log",
    "traceback",
    "profil",
    "dump",
    "debug_info",
    "explain",
)  # settings of JAX about other things

_locks: dict[str, threading.Lock] = defaultdict(threading.Lock)  # by key, so that one thread compiles for all


def compiled(
    jitted: Any,
    configured: Sequence[Configured | Variants],
    arrays: Sequence[Any],
    static: Mapping[str, Any],
    options: Mapping[str, Any] | None,
) -> Any:
    """The compiled program of a jitted function of (*configured, *arrays), from disk if it is there.

    Args:
        jitted: What `jax.jit` made.
        configured: Algorithms and worlds, batched.
        arrays: The other arguments.
        static: Arguments that are fixed at compile time, with the mesh of the devices.
        options: The compiler options of `jitted`.
    """
    folder = _runtime.cache_folder()
    text = None if folder is None else identity(jitted.__name__, configured, arrays, static, options)
    if folder is None or text is None:
        return jitted.lower(*configured, *arrays, **static).compile()
    key = hashlib.sha256(text.encode()).hexdigest()[:32]
    path = folder / "programs" / f"{key}{SUFFIX}"
    with _locks[key]:
        found = load(path, (*configured, *arrays), static["mesh"])
        if found is None:
            before = counts()
            found = jitted.lower(*configured, *arrays, **static).compile()
            compiled_now, found_now = (now - then for now, then in zip(counts(), before, strict=True))
            # XLA writes a program that JAX has read from its own cache without its functions: it could not be played.
            if found_now:
                _found_by_jax.add(key)
            if compiled_now and key not in _found_by_jax:
                keep(path, found)
        return found


_thread = threading.local()
_found_by_jax: set[str] = set()  # keys of programs that JAX may still have in memory


def counts() -> tuple[int, int]:
    """How many programs JAX has made in this thread, and how many of them it found in its own cache."""
    return getattr(_thread, "made", 0), getattr(_thread, "found", 0)


def _count_found(event: str, **_: Any) -> None:
    if event == "/jax/compilation_cache/cache_hits":
        _thread.found = counts()[1] + 1


def _count_made(event: str, duration_secs: float, **_: Any) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        _thread.made = counts()[0] + 1


jax.monitoring.register_event_listener(_count_found)
jax.monitoring.register_event_duration_secs_listener(_count_made)


# -------------------------------------------------------------------------------------------------------------- keys


def identity(
    name: str,
    configured: Sequence[Configured | Variants],
    arrays: Sequence[Any],
    static: Mapping[str, Any],
    options: Mapping[str, Any] | None,
) -> str | None:
    """A text that is the same for two programs only if they are; None if there is none."""
    codes = [code_and_words(one) for one in configured]
    structure = str(jax.tree.structure(arrays))
    if None in codes or " at 0x" in structure:
        return None
    shapes = [(np.shape(leaf), str(leaf.dtype)) for leaf in jax.tree.leaves((*configured, *arrays))]
    fixed = {key: value for key, value in static.items() if key != "mesh"}
    devices = [(device.id, device.device_kind) for device in static["mesh"].devices.flat]
    parts = (name, *codes, structure, shapes, sorted(fixed.items()), options, devices, *surroundings())
    return "\n".join(map(str, parts))


def code_and_words(configured: Configured | Variants) -> str | None:
    """Class, user-defined code, and static fields of an algorithm or world; None if they cannot be read as a text."""
    if isinstance(configured, Variants):
        codes = [code_and_words(learner) for learner in configured.learners]
        return None if None in codes else "\n".join(["variants", *filter(None, codes)])
    reader = Reader()
    kind = type(configured)
    parts = [f"{kind.__module__}.{kind.__qualname__}"]
    own = [part for part in kind.__mro__ if not is_package(part) and part is not object]
    parts += [reader.read(part) for part in own]
    traced, fixed = static_fields(configured)
    parts.append(str(traced))
    for name, value in fixed:
        text = repr(value) if is_plain(value) else reader.read(value)
        parts.append(f"{name}={text}")
        if " at 0x" in text:
            return None
    if own:
        parts.append(installed())
    return None if reader.opaque else "\n".join(parts)


def is_plain(value: Any) -> bool:
    """True for a word, a number, or a tuple of these."""
    return isinstance(value, PLAIN) or (isinstance(value, tuple) and all(map(is_plain, value)))


def surroundings() -> tuple[str, ...]:
    """What a program depends on besides its arguments: code, releases, settings, machine."""
    from jax._src import config  # JAX has no public way to ask what tracing depends on in this context

    values = jax.config.values.items()
    settings = sorted((name, str(v)) for name, v in values if not any(word in name for word in IRRELEVANT))
    here = [text for text in map(str, config.trace_context()) if " at 0x" not in text]  # the axes around, here none
    return package_code(), machine(), str(settings), str(here), os.environ.get("XLA_FLAGS", "")


@cache
def package_code() -> str:
    """A digest of the package's files."""
    folder = Path(__file__).parents[1]
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        found.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return found.hexdigest()


@cache
def machine() -> str:
    """Releases and the processor: what is compiled for one may not run on another."""
    features = ""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))
    releases = [importlib.metadata.version(name) for name in ("jax", "jaxlib")]
    backend = jax.local_devices()[0].client.platform_version
    return f"{releases} {platform.python_version()} {platform.platform()} {platform.machine()} {backend} {features}"


@cache
def installed() -> str:
    """All installed releases, as user-defined code may call any of them."""
    return str(sorted({(found.name, found.version) for found in importlib.metadata.distributions()}))


# ------------------------------------------------------------------------------------------------------------- files


def load(path: Path, arguments: tuple, mesh: jax.sharding.Mesh) -> Any:
    """The program in a file; None if there is none that can be used."""
    try:
        content = path.read_bytes()
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            return None
        serialized, result = pickle.loads(content[32:])
        register_calls()
        devices = list(mesh.devices.flat)
        found = serialize_executable.deserialize_and_load(
            serialized,
            jax.tree.structure((arguments, {})),
            jax.tree.structure(result),
            backend=devices[0].client,
            execution_devices=devices,
        )
        os.utime(path)  # used now: the oldest are forgotten first
    except Exception:  # whatever is wrong with an entry, the program can be compiled
        return None
    return found


@cache
def register_calls() -> None:
    """Tell XLA the addresses of LAPACK's routines; tracing does it, and a loaded program would crash without."""
    from jaxlib import lapack

    lapack.prepare_lapack_call("potrf", np.dtype(np.float32))


def keep(path: Path, program: Any) -> None:
    """Write a program; what cannot be written is not kept."""
    with suppress(Exception):  # such as a full disk, or a program that cannot be serialised
        serialized, _, out_tree = serialize_executable.serialize(program)
        result = jax.tree.unflatten(out_tree, range(out_tree.num_leaves))
        content = pickle.dumps((serialized, result))
        path.parent.mkdir(parents=True, exist_ok=True)
        _files.write_whole(path, hashlib.sha256(content).digest() + content)
        forget_oldest(path.parent)


def forget_oldest(folder: Path) -> None:
    """Delete entries that were not used for longest, until all fit into the limit."""
    entries = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in folder.glob(f"*{SUFFIX}"))
    total = sum(size for _, size, _ in entries)
    for _, size, path in entries:
        if total <= LIMIT:
            break
        path.unlink(missing_ok=True)
        total -= size
