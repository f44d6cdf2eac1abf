#!/usr/bin/env bash
# Expected: fhir.resources keeps a quantity of 2.50 as a decimal, because FHIR says that the precision of a decimal means something and
#           must not be lost.
# Seen:     JSON numbers pass through a float: 2.50 leaves as 2.5, 0.1000000000000000055 as 0.1, and seven digits of a second as six.
# Versions: fhir.resources 8.3.0
# Date:     2026-11-29
# Means:    the number of decimals, which tells laboratories apart, is lost before noise is added; two sites that differ by it look alike.
# Source:   https://hl7.org/fhir/R5/datatypes.html#decimal
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet fhir.resources==8.3.0
"$folder/venv/bin/python" - <<'PY'
import json

from fhir.resources.observation import Observation

text = (
    '{"resourceType": "Observation", "status": "final", "code": {"text": "creatinine"}, '
    '"effectiveDateTime": "2020-03-05T12:00:00.1234567+02:00", "valueQuantity": {"value": %s, "unit": "mg/dL"}}'
)
found = {}
for value in ("2.50", "0.1000000000000000055", "1.125"):
    out = json.loads(Observation.model_validate_json(text % value).model_dump_json(), parse_float=str)
    found[value] = out["valueQuantity"]["value"]
print("read and written:", found, out["effectiveDateTime"])
assert found["1.125"] == "1.125"
assert (found["2.50"], found["0.1000000000000000055"]) == ("2.5", "0.1"), "the behaviour has changed"
assert out["effectiveDateTime"] == "2020-03-05T12:00:00.123456+02:00"
PY
