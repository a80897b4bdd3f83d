"""Every Python example in the README runs, at a smaller size."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
SMALLER = [
    ("synthetic(seed=0)", "synthetic(seed=0, dim=5, num_arms=40, num_key_terms=20, num_users=10)"),
    ("horizon=6000", "horizon=300"),
    ("arms=100", "arms=10"),
    ("arms=[100, 200]", "arms=[10, 20]"),
    ("[fb.FedConPE(), fb.LinUCB()], trials=128, users=20", "[fb.LinUCB()], trials=9, users=4"),
]


@pytest.mark.parametrize("code", [code for code in EXAMPLES if "synthetic" in code])
def test_example(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for at_full_size, small in SMALLER:
        code = code.replace(at_full_size, small)
    assert "6000" not in code
    exec(compile(code, "README.md", "exec"), {})
    assert "mean" in capsys.readouterr().out


def test_there_are_examples():
    assert len([code for code in EXAMPLES if "synthetic" in code]) == 3
