"""The codec bench's figures as the shared result: one check per codec and verb, named by both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainingkit.bench.result import Check, Result, make_check, make_result
from trainingkit.bench.stats import Interval


def result_of(measured: Mapping[str, Any], *, command: str) -> Result:
    """The result of what `trainingkit.bench.codec.run` returns. The rows keep verb and codec; there is no twin."""
    checks = [_check(found) for found in measured["checks"]]
    machine, versions = dict(measured["machine"]), dict(measured["versions"])
    facts = {name: machine.pop(name) for name in ("threads", "size_bytes", "rounds") if name in machine}
    rows = list(measured["rows"])
    result = make_result("codec", command=command, checks=checks, rows=rows, facts=facts)
    return result.model_copy(update={"versions": result.versions | versions})


def _check(found: Mapping[str, Any]) -> Check:
    name = f"{found['name']} {found['codec']}" if "codec" in found else found["name"]
    interval = Interval(found["value"], found["low"], found["high"])
    return make_check(name, interval, found["goal"], unit=found["unit"])
