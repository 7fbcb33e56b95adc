#!/usr/bin/env python3
"""Fetches a list page by page. Exits 75 when it is worth another try."""
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request

param = {name: os.environ["APOLLO_PARAM_" + name] for name in ("URL", "ITEMS", "NEXT", "PAGE", "MAX_PAGES")}
headers = {"Accept": "application/json", "User-Agent": "apollo"}
if os.environ.get("TOKEN"):
    headers["Authorization"] = "Bearer " + os.environ["TOKEN"]


def at(value, path):
    for name in filter(None, path.split(".")):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def get(url):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as e:
        print(f"{url}: {e}", file=sys.stderr)
        sys.exit(75 if e.code == 429 or e.code >= 500 else 1)
    except (OSError, ValueError) as e:
        print(f"{url}: {e}", file=sys.stderr)
        sys.exit(75)


def numbered(number):
    parts = urllib.parse.urlsplit(param["URL"])
    query = [(k, v) for k, v in urllib.parse.parse_qsl(parts.query, keep_blank_values=True) if k != param["PAGE"]]
    return parts._replace(query=urllib.parse.urlencode([*query, (param["PAGE"], number)])).geturl()


home = urllib.parse.urlsplit(param["URL"])
url, pages = param["URL"] if param["NEXT"] else numbered(1), 0
with open("items.ndjson", "w", encoding="utf-8") as out:
    while url:
        if pages == int(param["MAX_PAGES"]):
            sys.exit(f"there are more than {pages} pages")
        answer = get(url)
        pages += 1
        items = at(answer, param["ITEMS"])
        if not isinstance(items, list):
            sys.exit(f"{url}: there is no list at {param['ITEMS'] or 'the top'}")
        for item in items:
            out.write(json.dumps(item, ensure_ascii=False, separators=(",", ":")) + "\n")
        if param["NEXT"]:
            link = at(answer, param["NEXT"])
            url = urllib.parse.urljoin(url, link) if link else ""
            if url and urllib.parse.urlsplit(url)[:2] != home[:2]:
                sys.exit(f"the next page is on another host: {url}")  # the token stays where it belongs
        else:
            url = numbered(pages + 1) if items else ""
with open(os.environ["APOLLO_OUTPUTS"], "w", encoding="utf-8") as f:
    json.dump({"pages": pages}, f)
