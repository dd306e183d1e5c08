"""The container files use only settings of the service."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import yaml

from proctor.rest.settings import SETTINGS, read_settings

ROOT = Path(__file__).parents[3]
VARIABLES = {setting.variable for setting in SETTINGS}


def test_every_variable_of_the_container_is_a_setting_and_can_be_read() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    given = dict(re.findall(r"(PROCTOR_[A-Z_]+)=(\S+)", text))
    assert given and set(given) <= VARIABLES
    settings = read_settings({}, given, lambda home: Path(home or "none"))
    assert (settings.host, settings.port, settings.service.home) == ("0.0.0.0", 8700, Path("/data"))
    sent = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line.startswith("!")}
    for copied in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in copied.split())
        assert set(copied.split()) <= sent, "the engine is not sent it"
    assert "USER proctor" in text
    probe = json.loads(re.search(r"HEALTHCHECK[^[]*(\[.*\])", text).group(1))  # type: ignore[union-attr]  # there is one
    compile(probe[2], "HEALTHCHECK", "exec")


def test_sources_of_the_wheel_are_copied_into_the_image() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = {name for line in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE) for name in line.split()}
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*wheel["packages"], "hatch_build.py", "native_build.py", "docs"]
    assert {Path(name).parts[0] for name in needed} <= copied
    assert "--frozen" in text and "uv.lock" in copied, "what is installed is what was tested"


def test_every_variable_of_the_compose_file_is_a_setting_and_the_database_waits() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    service, database = compose["services"]["proctor"], compose["services"]["database"]
    assert set(service["environment"]) <= VARIABLES
    assert service["environment"]["PROCTOR_DATABASE_URL"].startswith("postgresql://")
    assert service["depends_on"]["database"]["condition"] == "service_healthy" and database["healthcheck"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert "ports" not in database
