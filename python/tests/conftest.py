# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
import pytest


@pytest.fixture
def no_telemetry(monkeypatch):
    """Keeps TRL from sending telemetry: it sends none in CI."""
    monkeypatch.setenv("CI", "1")
