"""python -m elasticrun runs the binary of this package, which runs scripts with this interpreter."""

import os
import sys

from elasticrun._binary import binary


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
