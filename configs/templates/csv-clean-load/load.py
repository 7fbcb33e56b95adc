#!/usr/bin/env python3
"""Loads clean rows into a table. A second attempt loads the same rows again and changes nothing."""
import csv
import json
import os
import sqlite3
import sys

table = os.environ["APOLLO_PARAM_TABLE"]
key = os.environ["APOLLO_PARAM_KEY"]
types = {name: {"integer": "INTEGER", "number": "REAL"}.get(s.get("type"), "TEXT")
         for name, s in json.loads(os.environ["APOLLO_PARAM_ROW"]).get("properties", {}).items()}


def quote(name):
    return '"' + name.replace('"', '""') + '"'


try:
    with open(os.environ["APOLLO_IN_ROWS"], newline="", encoding="utf-8") as f, \
            sqlite3.connect(os.environ["APOLLO_PARAM_DATABASE"], timeout=20) as database:
        rows = csv.reader(f)
        columns = next(rows)
        fields = ", ".join(f"{quote(c)} {types.get(c, 'TEXT')}" for c in columns)
        database.execute(f"CREATE TABLE IF NOT EXISTS {quote(table)} ({fields}, PRIMARY KEY ({quote(key)}))")
        places = ", ".join("?" for _ in columns)
        names = ", ".join(map(quote, columns))
        insert = f"INSERT OR REPLACE INTO {quote(table)} ({names}) VALUES ({places})"
        loaded = database.executemany(insert, ([v if v else None for v in row] for row in rows)).rowcount
except sqlite3.OperationalError as e:
    print(f"cannot load: {e}", file=sys.stderr)
    sys.exit(75 if "locked" in str(e) else 1)
with open(os.environ["APOLLO_OUTPUTS"], "w", encoding="utf-8") as f:
    json.dump({"loaded": max(loaded, 0)}, f)
