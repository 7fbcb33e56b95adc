#!/usr/bin/env python3
"""Asks for a page and looks at the certificate. Whatever it finds is a verdict."""
import json
import os
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request

url = os.environ["APOLLO_PARAM_URL"]
warn = int(os.environ["APOLLO_PARAM_WARN_DAYS"])
parts = urllib.parse.urlsplit(url)


def days_left():
    with socket.create_connection((parts.hostname, parts.port or 443), timeout=20) as plain, \
            ssl.create_default_context().wrap_socket(plain, server_hostname=parts.hostname) as secure:
        return int((ssl.cert_time_to_seconds(secure.getpeercert()["notAfter"]) - time.time()) // 86400)


verdict, detail, days = "up", "", None
try:
    if parts.scheme == "https":
        days = days_left()
        if days < warn:
            verdict, detail = "warning", f"the certificate ends in {days} days"
    with urllib.request.urlopen(urllib.request.Request(url, headers={"User-Agent": "apollo"}), timeout=30) as answer:
        detail = detail or f"status {answer.status}"
except urllib.error.HTTPError as e:
    verdict, detail = "down", f"status {e.code}"
except ssl.SSLCertVerificationError as e:
    verdict, detail = "down", f"the certificate is not trusted: {e.verify_message}"
except OSError as e:
    verdict, detail = "down", f"no answer: {e}"
print(verdict, detail)
with open(os.environ["APOLLO_OUTPUTS"], "w", encoding="utf-8") as f:
    json.dump({"verdict": verdict, "detail": detail, "days": days}, f)
