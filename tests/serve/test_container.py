"""The container files say only what the service understands."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from proctor.serve.settings import SETTINGS, read_settings

ROOT = Path(__file__).parents[2]
VARIABLES = {setting.variable for setting in SETTINGS}


def test_every_variable_of_the_container_is_a_setting_and_can_be_read() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    given = dict(re.findall(r"(PROCTOR_[A-Z_]+)=(\S+)", text))
    assert given and set(given) <= VARIABLES
    settings = read_settings({}, given, lambda home: Path(home or "none"))
    assert (settings.host, settings.port, settings.service.home) == ("0.0.0.0", 8700, Path("/data"))
    for copied in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in copied.split())
    assert "USER proctor" in text


def test_every_variable_of_the_compose_file_is_a_setting_and_the_database_waits() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    service, database = compose["services"]["proctor"], compose["services"]["database"]
    assert set(service["environment"]) <= VARIABLES
    assert service["environment"]["PROCTOR_DATABASE_URL"].startswith("postgresql://")
    assert service["depends_on"]["database"]["condition"] == "service_healthy" and database["healthcheck"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert "ports" not in database
