"""What an algorithm does, as a text that changes when its code does: stored runs of other code are not its own."""

import dataclasses
import functools
import inspect
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import jax
import numpy as np

from fedbandit_jax.results.folders import digest

PACKAGE = "fedbandit_jax."
INSTALLED = tuple(Path(path).resolve() for path in sysconfig.get_paths().values())
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))


def code_of(kind: type) -> str:
    """The revisions of the package's classes, and a digest of the code of one's own, down to the base class.

    The digest is of compiled code, which a notebook has too: of all methods, and of the functions, classes and values
    that they refer to by name, as far as these are one's own.
    """
    lines = []
    for part in kind.__mro__:
        if is_package(part):
            lines.append(f"{PACKAGE}{part.__qualname__} {vars(part).get('revision', 1)}")
        elif part is not object:
            lines.append(digest([Reader().read(part)]))
    return "\n".join(lines)


def is_package(kind: type) -> bool:
    """Is it a class of this package, rather than one's own?"""
    return kind.__module__.startswith(PACKAGE)


class Reader:
    """Writes down what code does; everything once, so that functions may call each other."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.opaque = False  # met an object of which only the class could be written down

    def read(self, thing: Any) -> str:
        if isinstance(thing, PLAIN):
            return repr(thing)
        if isinstance(thing, tuple | list):
            return f"({', '.join(map(self.read, thing))})"
        if isinstance(thing, set | frozenset):
            return f"{{{', '.join(sorted(map(self.read, thing)))}}}"
        if isinstance(thing, dict):
            return f"{{{', '.join(f'{self.read(k)}: {self.read(v)}' for k, v in thing.items())}}}"
        if isinstance(thing, np.ndarray | np.generic | jax.Array):
            array = np.asarray(thing)
            return f"{array.dtype}{array.shape} {digest([array.tobytes().hex()])}"
        if id(thing) in self.seen:
            return "again"
        self.seen.add(id(thing))
        return self.read_object(thing)

    def read_object(self, thing: Any) -> str:
        if isinstance(thing, CodeType):
            return f"code({thing.co_code.hex()}, {self.read(thing.co_consts)}, {thing.co_names})"
        if isinstance(thing, staticmethod | classmethod):
            return self.read(thing.__func__)
        if isinstance(thing, property):
            return self.read((thing.fget, thing.fset))
        if isinstance(thing, functools.partial):
            return self.read((thing.func, thing.args, thing.keywords))
        if callable(thing) and hasattr(thing, "__wrapped__"):  # decorated, such as by jax.jit
            return self.read(inspect.unwrap(thing))
        if not is_own(thing):
            return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"
        if isinstance(thing, FunctionType):
            return self.read_function(thing)
        if isinstance(thing, type):
            return self.read_class(thing)
        self.opaque = True
        return f"a {type(thing).__qualname__}"

    def read_function(self, function: FunctionType) -> str:
        names, code = names_in(function.__code__), function.__code__
        used = {name: function.__globals__[name] for name in names if name in function.__globals__}
        for module in [value for value in used.values() if isinstance(value, ModuleType) and is_own(value)]:
            used |= {name: vars(module)[name] for name in names if name in vars(module)}
        outer = zip(code.co_freevars, function.__closure__ or (), strict=True)
        used |= {name: cell.cell_contents for name, cell in outer if name != "__class__"}
        used = {name: value for name, value in sorted(used.items()) if not isinstance(value, ModuleType)}
        return self.read((code, function.__defaults__, function.__kwdefaults__, used))

    def read_class(self, kind: type) -> str:
        fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
        skipped = {"name", *fields}  # hyperparameters tell their values themselves
        own = {name: value for name, value in sorted(vars(kind).items()) if name not in skipped}
        # Of the names that Python and dataclasses give, those that one has written oneself.
        own = {name: value for name, value in own.items() if not name.startswith("__") or is_written(value)}
        return f"class {kind.__qualname__} {self.read(own)}"


def names_in(code: CodeType) -> set[str]:
    """Names of globals and attributes in a function and in the functions inside it."""
    inner = [names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*inner)


def is_written(method: Any) -> bool:
    return isinstance(method, FunctionType) and method.__code__.co_filename != "<string>"


def is_own(thing: Any) -> bool:
    """Is it neither installed nor the package's?"""
    name = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None) or ""
    if name.startswith(PACKAGE) or name in sys.builtin_module_names:
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is None or not any(Path(file).resolve().is_relative_to(path) for path in INSTALLED)
