"""Install a wheel into an empty environment, outside any checkout, and use it: `tests/check_wheel.py dist/*.whl`.

Every command explains itself, a small run and its report work, and the benchmarks and their C kernel are there.
"""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

COMMANDS = ("run", "sweep", "tune", "reproduce", "report", "bench", "data", "data describe", "data prepare")
SMALL = ("--clients", "2", "--arms", "5", "--horizon", "50", "--users", "2", "--seeds", "1")
CONTENTS = """
from importlib import import_module, resources
import fedbandit_jax as fb
from fedbandit_jax import benchmarks

home = resources.files("fedbandit_jax")
assert "site-packages" in str(home), home
for name in ("py.typed", "report/assets/report.css", "report/assets/report.js", "benchmarks/linucb_kernel.c"):
    assert home.joinpath(name).is_file(), name
for suite in benchmarks.SUITES:
    assert callable(getattr(import_module(f"fedbandit_jax.benchmarks.{suite}"), suite)), suite
print(f"fedbandit-jax {fb.__version__}: {len(fb.REGISTRY)} algorithms, {len(benchmarks.SUITES)} benchmarks")
"""


def check(wheel: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bin_folder = Path(folder) / "env" / ("Scripts" if os.name == "nt" else "bin")
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

        def call(program: str, *arguments: str) -> None:
            print(program, *(argument for argument in arguments if "\n" not in argument), flush=True)
            done = subprocess.run(
                [bin_folder / program, *arguments], cwd=folder, env=clean, capture_output=True, text=True
            )
            if done.returncode:
                sys.exit(f"{done.stdout}{done.stderr}\n{program} {' '.join(arguments)} failed")
            if "\n" in arguments[-1]:
                print(done.stdout, end="")

        venv.create(bin_folder.parent, with_pip=True)
        call("python", "-m", "pip", "install", "--quiet", str(wheel))
        call("python", "-c", CONTENTS)
        for command in COMMANDS:
            call("fedbandit", *command.split(), "--help")
        call("fedbandit", "--version")
        call("fedbandit", "run", *SMALL, "--out", "small")
        call("fedbandit", "report", "small")
        assert any(Path(folder, "small").rglob("*.html")), "the report has a page"


if __name__ == "__main__":
    for name in sys.argv[1:] or sys.exit("name a wheel"):
        check(Path(name).resolve())
        print(f"{name} works where there is no checkout")
