"""Writes what a worker was started with as JSON to the file $OUT/RANK."""

import json
import os
import sys

with open(os.path.join(os.environ["OUT"], os.environ["RANK"]), "w") as file:
    json.dump({"Env": dict(os.environ), "Args": sys.argv[1:], "Options": sys.orig_argv[1:-len(sys.argv)]}, file)
