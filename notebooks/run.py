#!/usr/bin/env python3
"""Runs every notebook and compares what comes out with what is committed.

usage: notebooks/run            compare; a difference is an error
       notebooks/run --write    keep the new outputs

Text must be the same; of pictures there must be one where there was one, as fonts are drawn a little differently elsewhere.
"""

import difflib
import pathlib
import sys

import nbformat
from nbclient import NotebookClient

HERE = pathlib.Path(__file__).resolve().parent
WRITE = "--write" in sys.argv[1:]


def shown(notebook):
    """What a reader sees below each cell, a line each."""
    lines = []
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                lines.append(f"cell {number}: a picture")
            text = data.get("text/plain", "") if "image/png" not in data else ""
            lines += [f"cell {number}: {line}" for line in (output.get("text", "") or text).splitlines()]
    return lines


def plain(notebook):
    """Without what differs from run to run: times, numbers of runs, the kernel's version."""
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.execution_count = None
            for output in cell.outputs:
                output.metadata = {}
                if "execution_count" in output:
                    output.execution_count = None
    return notebook


wrong = False
for path in sorted(HERE.glob("*.ipynb")):
    committed = nbformat.read(path, as_version=4)
    run = NotebookClient(nbformat.read(path, as_version=4), timeout=300, resources={"metadata": {"path": str(HERE)}})
    made = plain(run.execute())
    before, after = shown(committed), shown(made)
    print(f"{path.name}: {len(after)} lines of output", flush=True)
    if WRITE:
        nbformat.write(made, path)
    elif before != after:
        wrong = True
        print("\n".join(difflib.unified_diff(before, after, "committed", "from running it", lineterm="", n=1)))
if wrong:
    sys.exit("a notebook shows something else than what is committed: notebooks/run --write, and look at the difference")
