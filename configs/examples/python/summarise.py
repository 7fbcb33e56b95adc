"""Sums one column of a CSV file by another."""

import argparse
import csv
import json
import os
from collections import defaultdict
from decimal import Decimal

parser = argparse.ArgumentParser()
parser.add_argument("--by", required=True)
parser.add_argument("--sum", required=True)
options = parser.parse_args()

totals = defaultdict(Decimal)
with open(os.environ["APOLLO_IN_ORDERS"], newline="") as f:
    for row in csv.DictReader(f):
        totals[row[options.by]] += Decimal(row[options.sum])

with open("totals.json", "w") as f:
    json.dump({name: str(amount) for name, amount in sorted(totals.items())}, f, ensure_ascii=False)
with open(os.environ["APOLLO_OUTPUTS"], "w") as f:
    json.dump({"total": str(sum(totals.values()))}, f)
