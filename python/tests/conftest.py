# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
import pytest


@pytest.fixture
def no_telemetry(monkeypatch):
    """TRL sends none where it believes to be tested."""
    monkeypatch.setenv("CI", "1")
