#!/usr/bin/env python3
"""Tells a webhook of a change. Exits 75 when it could not be told."""
import json
import os
import sys
import urllib.request

told = False
if os.environ["CHANGED"] == "true":
    message = {"site": os.environ["APOLLO_PARAM_URL"], "verdict": os.environ["VERDICT"], "was": os.environ["WAS"],
               "detail": os.environ["DETAIL"], "run": os.environ["APOLLO_RUN_ID"]}
    print(json.dumps(message))
    if os.environ["APOLLO_PARAM_NOTIFY"]:
        request = urllib.request.Request(os.environ["APOLLO_PARAM_NOTIFY"], data=json.dumps(message).encode(), method="POST",
                                         headers={"Content-Type": "application/json", "Idempotency-Key": os.environ["APOLLO_IDEMPOTENCY_KEY"]})
        try:
            urllib.request.urlopen(request, timeout=20).close()
        except OSError as e:
            print(f"cannot tell: {e}", file=sys.stderr)
            sys.exit(75)
        told = True
with open(os.environ["APOLLO_OUTPUTS"], "w", encoding="utf-8") as f:
    json.dump({"told": told}, f)
