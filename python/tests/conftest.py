"""Event loops: every test of connections runs on asyncio's own and on uvloop's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest


def uvloop_loop() -> asyncio.AbstractEventLoop:
    uvloop = pytest.importorskip("uvloop", reason="NOT RUN: uvloop is not installed")
    loop = uvloop.new_event_loop()
    assert isinstance(loop, asyncio.AbstractEventLoop)
    return loop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop_loop}
