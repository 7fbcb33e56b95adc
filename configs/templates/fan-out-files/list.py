#!/usr/bin/env python3
"""Lists the files of a directory by name."""
import json
import os

directory = os.environ["APOLLO_PARAM_DIRECTORY"]
files = sorted(e.name for e in os.scandir(directory)
               if e.is_file() and not e.name.startswith(".") and e.name.endswith(os.environ["APOLLO_PARAM_SUFFIX"]))
with open(os.environ["APOLLO_OUTPUTS"], "w", encoding="utf-8") as f:
    json.dump({"files": files}, f)
