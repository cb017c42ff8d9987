"""python -m elasticrun runs the binary of this package, which runs scripts with this interpreter."""

import importlib.metadata
import os
import sys


def binary():
    """Returns the path of the binary; raises FileNotFoundError."""
    recorded = [f.locate() for f in importlib.metadata.files("elasticrun") or [] if f.parts[-2:] == ("bin", "elasticrun")]
    # pip install --target records another location than the one that it installs to.
    beside = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin", "elasticrun")
    for path in [*map(str, recorded), beside]:
        if os.path.isfile(path):
            return path
    raise FileNotFoundError("elasticrun: the binary of this package is missing: reinstall the package")


def main():
    if not os.environ.get("PYTHON_EXEC"):
        os.environ["PYTHON_EXEC"] = sys.executable
    try:
        path = binary()
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as err:
        sys.exit(str(err))


if __name__ == "__main__":
    main()
