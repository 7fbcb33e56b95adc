#!/usr/bin/env python3
"""Compares a verdict with the one that was remembered. The first one ever is a change only when it is bad."""
import json
import os

order = ["up", "warning", "down"]
now = os.environ["VERDICT"]
try:
    with open(os.environ["APOLLO_PARAM_STATE"], encoding="utf-8") as f:
        was = f.read().strip()
except FileNotFoundError:
    was = ""
before = was if was in order else "up"
with open(os.environ["APOLLO_OUTPUTS"], "w", encoding="utf-8") as f:
    json.dump({"was": was or "unknown", "changed": now != before, "worse": order.index(now) > order.index(before)}, f)
