"""The reports of ``packetlane lab --json``, as pandas frames. This module needs pandas."""

from __future__ import annotations

import json
import os
from typing import Literal, Union

import pandas

__all__ = ["read"]

_SCHEMA = 1


def read(
    path: Union[str, os.PathLike[str]],
    table: Literal["rows", "ratios", "published"] = "rows",
) -> pandas.DataFrame:
    """Reads one table of a report. ``frame.attrs["machine"]`` describes the machine.

    The keys of a case (``op=seal bytes=61 batch=64``) also become columns: ``case.op``, ``case.bytes``.
    Raises ``ValueError`` if the file is not such a report.
    """
    name = os.fspath(path)
    with open(path, encoding="utf-8") as file:
        try:
            report = json.load(file)
        except ValueError as error:
            raise ValueError(f"{name}: not a report of packetlane lab --json: {error}") from None
    if not isinstance(report, dict) or "machine" not in report:
        raise ValueError(f"{name}: not a report of packetlane lab --json: it names no machine")
    if report.get("schema") != _SCHEMA:
        raise ValueError(f"{name}: schema {report.get('schema')}, expected {_SCHEMA}")
    if table not in ("rows", "ratios", "published"):
        raise ValueError(f"unknown table {table!r}, expected rows, ratios or published")
    rows = []
    for row in report.get(table, []):
        pairs = (word.split("=", 1) for word in row["case"].split() if "=" in word)
        rows.append({**row, **{f"case.{key}": _number(value) for key, value in pairs}})
    frame = pandas.DataFrame(rows)
    frame.attrs["machine"] = report["machine"]
    return frame


def _number(text: str) -> Union[int, str]:
    return int(text) if text.isdecimal() else text
