"""Known differences between our compiler and the oracle's on the corpus, each with its reason."""

# files by path below .corpus/files
LEDGER: dict[str, str] = {}

# files that are left out because they take minutes
SLOW: dict[str, str] = {}
