"""The committed measurements, read; nothing is computed here but what a column says."""

import csv
import pathlib
import re

MEASURED = pathlib.Path(__file__).resolve().parents[1] / "measured"


def rows(name):
    with open(MEASURED / "claims" / name, newline="") as file:
        return list(csv.DictReader(file))


def h200(page):
    """Tables of a page of measured/h200: by recording, by policy, the cells by their headings."""
    found, job = {}, None
    for line in (MEASURED / "h200" / page).read_text().splitlines():
        if heading := re.match(r"### (\S+?)\.pickle\.zst: ", line):
            job, head = heading[1], None
        elif not line.startswith("|"):
            head = None
            job = None if line.startswith("##") else job
        elif job:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if head is None:
                head = cells
            elif not cells[0].startswith("---"):
                found.setdefault(job, {})[cells[0]] = dict(zip(head, cells))
    return found


def number(cell):
    """The number in front of a cell: `1,234 ± 5` is 1234."""
    return float(cell.split()[0].replace(",", ""))


def size(n):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n) < 1024 or unit == "GiB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.2f} {unit}"
        n /= 1024


def share(x):
    return f"{x * 100:+.1f} %"


def table(head, lines, others="---:|"):
    text = "| " + " | ".join(head) + " |\n|---|" + others * (len(head) - 1) + "\n"
    return text + "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)
