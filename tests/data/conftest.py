"""Files of data holders, and the real data where the machine has them."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def csv(tmp_path):
    """Writes a csv file: `csv("a", "x,y", "1,0")` gives the path of a.csv."""

    def write(name, *lines):
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def adult_folder():
    """The folder of the raw UCI Adult files."""
    root = os.environ.get("FEDKERN_DATA")
    if not root or not (Path(root) / "uci-adult").is_dir():
        pytest.skip("needs UCI Adult: set FEDKERN_DATA to the folder that holds uci-adult/")
    return Path(root) / "uci-adult"
