#!/usr/bin/env python3
"""Splits a CSV file into the rows that meet the schema and those that do not, each of these with its reason."""
import csv
import json
import os
import re

row_schema = json.loads(os.environ["APOLLO_PARAM_ROW"])
key = os.environ["APOLLO_PARAM_KEY"]
properties = row_schema.get("properties", {})
required = set(row_schema.get("required", [])) | {key}


def number(text, whole):
    if not re.fullmatch(r"-?(0|[1-9][0-9]*)" + ("" if whole else r"(\.[0-9]+)?([eE][+-]?[0-9]+)?"), text):
        return None
    return float(text)


def fault(row):
    """Says why a row is rejected, or gives nothing."""
    for name in sorted(required):
        if not row.get(name):
            return f"{name} is missing"
    for name, value in row.items():
        s = properties.get(name, {})
        if not value:
            continue
        if s.get("type") in ("integer", "number"):
            n = number(value, s["type"] == "integer")
            if n is None:
                return f"{name} is no {s['type']}: {value}"
            if n < s.get("minimum", n) or n > s.get("maximum", n):
                return f"{name} is out of range: {value}"
        if "enum" in s and value not in map(str, s["enum"]):
            return f"{name} is not among {s['enum']}: {value}"
        if "pattern" in s and not re.search(s["pattern"], value):
            return f"{name} does not match {s['pattern']}: {value}"
    return ""


with open(os.environ["APOLLO_IN_RAW"], newline="", encoding="utf-8-sig") as raw, \
        open("clean.csv", "w", newline="", encoding="utf-8") as clean, \
        open("rejected.csv", "w", newline="", encoding="utf-8") as rejected:
    rows = csv.DictReader(raw)
    columns = [name.strip() for name in rows.fieldnames]
    rows.fieldnames = columns
    good = csv.DictWriter(clean, columns, lineterminator="\n")
    bad = csv.DictWriter(rejected, ["line", "reason", *columns], lineterminator="\n")
    good.writeheader()
    bad.writeheader()
    seen = set()
    for row in rows:
        row = {name: (value or "").strip() for name, value in row.items() if name is not None}
        why = fault(row)
        if not why and row[key] in seen:
            why = f"{key} {row[key]} was there already"
        if why:
            bad.writerow({"line": rows.line_num, "reason": why, **row})
        else:
            seen.add(row[key])
            good.writerow(row)
