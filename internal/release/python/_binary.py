"""Where the binary of this package is."""

import os


def binary():
    # type: () -> str
    """Returns the path of the binary; raises FileNotFoundError."""
    import importlib.metadata

    try:
        files = importlib.metadata.files("elasticrun") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    recorded = [str(f.locate()) for f in files if f.parts[-2:] == ("bin", "elasticrun")]
    # pip install --target records another location than the one that it installs to.
    beside = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin", "elasticrun")
    for path in recorded + [beside]:
        if os.path.isfile(path):
            return path
    raise FileNotFoundError("elasticrun: the binary of this package is missing: reinstall the package")
