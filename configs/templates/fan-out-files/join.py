#!/usr/bin/env python3
"""Joins what the instances found, one row a file."""
import csv
import json
import os


def value(role):
    """Gives an input that is a value, which comes in a file when it is long."""
    name = "APOLLO_IN_" + role
    if name in os.environ:
        return json.loads(os.environ[name])
    with open(os.environ[name + "_FILE"], encoding="utf-8") as f:
        return json.load(f)


with open("summary.csv", "w", newline="", encoding="utf-8") as f:
    out = csv.writer(f, lineterminator="\n")
    out.writerow(["file", "lines", "words", "bytes", "sha256"])
    for name, line in zip(value("FILES"), value("LINES"), strict=True):
        out.writerow([name, *line.split(",")])
