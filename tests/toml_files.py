"""Files of sweeps, for tests of the shell."""

DATA = """
[data]
dim = 6
num_arms = 60
num_key_terms = 30
num_users = 6
"""  # the fixture `catalog`


def written(folder, text):
    path = folder / "small.toml"
    path.write_text(text)
    return path
