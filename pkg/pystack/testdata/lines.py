"""Prints each code object of some sources: its table of lines, and the line of each instruction, as Python has them."""

import dis
import json
import sys

SOURCES = ["x = 1", "", "def f():\n\n\n  pass\n\n\nf()\n" + "\n" * 300 + "f(); f()\n"]


def tables(code):
    size = len(code.co_code)
    if hasattr(code, "co_lines"):
        lines = [0] * size
        for start, end, line in code.co_lines():
            lines[start:end] = [line or 0] * (end - start)
        table, form = code.co_linetable, "locations" if sys.version_info >= (3, 11) else "ranges"
    else:
        lines, starts = [code.co_firstlineno] * size, list(dis.findlinestarts(code))
        for start, line in starts:
            lines[start:] = [line] * (size - start)
        table, form = code.co_lnotab, "lnotab"
    print(json.dumps({"Form": form, "First": code.co_firstlineno, "Table": table.hex(), "Lines": lines[::2]}))
    for const in code.co_consts:
        if hasattr(const, "co_code"):
            tables(const)


for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as f:
        SOURCES.append(f.read())
for source in SOURCES:
    tables(compile(source, "source", "exec"))
