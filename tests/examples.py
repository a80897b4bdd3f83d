"""Blocks of code in Markdown pages, as their readers would run them, at a smaller size."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", flags=re.DOTALL)
SMALLER = {  # an expression, and what stands in its place
    r"synthetic\(seed=0(?=\)|, user_norm)": "synthetic(seed=0, dim=5, num_arms=40, num_key_terms=20, num_users=10",
    r"horizon=\d{4,}": "horizon=300",
    r"arms=(100|50)\b": "arms=10",
    r"arms=\[100, 200\]": "arms=[10, 20]",
    r"\[fb.FedConPE\(\), fb.LinUCB\(\)\], trials=128, users=20": "[fb.LinUCB()], trials=9, users=4",
}


def blocks(page: Path | str, language: str = "python") -> list[str]:
    """The blocks of a page, or of its text, in one language."""
    text = page if isinstance(page, str) else page.read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def python_blocks(path: Path) -> list[tuple[str, str]]:
    """Each block, and the text block right behind it, which is what it prints ("" where there is none)."""
    return BLOCK.findall(path.read_text())


def smaller(code: str) -> str:
    for at_full_size, small in SMALLER.items():
        code = re.sub(at_full_size, small, code)
    assert "6000" not in code
    return code
