"""Every Python example in the README runs, at a smaller size."""

import pytest

from tests.examples import ROOT, blocks, smaller

EXAMPLES = blocks(ROOT / "README.md")


@pytest.mark.parametrize("code", EXAMPLES)
def test_example(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(smaller(code), "README.md", "exec"), {})
    assert "mean" in capsys.readouterr().out


def test_there_are_examples():
    assert len(EXAMPLES) == 2
