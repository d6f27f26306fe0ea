"""The version of the library; pyproject.toml says the same."""

VERSION = "0.3.0"
