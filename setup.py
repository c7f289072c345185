"""Make the links of the README absolute for the package index. All else: pyproject.toml."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
version = re.search(r'^__version__ = "(.+)"$', (HERE / "mapper/__init__.py").read_text(), re.M)[1]
files = f"{project['urls']['Repository']}/blob/v{version}/"
readme = re.sub(r"\]\((?![a-z]+:|#)", f"]({files}", (HERE / "README.md").read_text())

setup(long_description=readme, long_description_content_type="text/markdown")
