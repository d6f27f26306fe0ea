"""`python -m diffsim`."""

from diffsim.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
