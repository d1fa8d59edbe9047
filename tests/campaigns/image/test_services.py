"""The files that start a server: docker-compose.yml with what it mounts, and the unit for systemd."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.campaigns.image.dockerfile import ROOT, stages

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
UNIT = ROOT / "deploy" / "nyala.service"


@pytest.mark.parametrize("name", SERVICES)
def test_services_are_closed(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service and "--insecure" not in json.dumps(service)
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert re.fullmatch(r"nyala|[\w/]+:v?\d+\.\d+\.\d+", service["image"]), "no version, or one that moves"
    assert "user" not in service or name == "credentials"
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"]) and 0 < service["pids_limit"] <= 4096


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_exists(name: str) -> None:
    for each in SERVICES[name]["volumes"]:
        source = each.split(":")[0]
        assert (ROOT / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], source


def test_the_image_gets_what_its_command_names() -> None:
    last = {step.word: step for step in stages()[-1]}
    mounted = [each.split(":")[1] for each in SERVICES["nyala"]["volumes"]]
    assert set(last["VOLUME"].arguments()) < set(mounted)
    files = [word for word in last["CMD"].arguments() if word.startswith("/etc/")]
    assert {str(Path(file).parent) for file in files} == {"/etc/nyala"} <= set(mounted)
    script = (ROOT / "deploy" / "compose" / "credentials.sh").read_text()
    assert all(Path(file).name in script for file in files)
    assert {port.rpartition(":")[2] for port in SERVICES["nyala"]["ports"]} == set(last["EXPOSE"].arguments())


def test_prometheus_asks_the_server_with_its_token() -> None:
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    assert job["scheme"] == "https" and job["static_configs"] == [{"targets": ["nyala:8816"]}]
    (made,) = [each.split(":")[1] for each in SERVICES["prometheus"]["volumes"] if each.startswith("monitoring:")]
    script = (ROOT / "deploy" / "compose" / "credentials.sh").read_text()
    for file in (job["tls_config"]["ca_file"], job["authorization"]["credentials_file"]):
        assert Path(file).parent == Path(made) and f"/monitoring/{Path(file).name}" in script
    assert SERVICES["grants"]["command"] == ["grant", "add", "prometheus", "*", "maintain"]


def test_grafana_finds_the_dashboard_and_prometheus() -> None:
    provisioning = ROOT / "deploy" / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "nyala.yml").read_text())["providers"]
    places = [each.split(":")[1] for each in SERVICES["grafana"]["volumes"]]
    assert f"{provider['options']['path']}/nyala.json" in places
    (source,) = yaml.safe_load((provisioning / "datasources" / "nyala.yml").read_text())["datasources"]
    assert source["type"] == "prometheus" and source["url"] == "http://prometheus:9090" and source["isDefault"]


def unit() -> ConfigParser:
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    parser.read_string(UNIT.read_text())
    return parser


def test_the_unit_writes_to_its_own_directories_only() -> None:
    service = dict(unit()["Service"])
    assert service["User"] == "nyala" and service["ProtectSystem"] == "strict" and service["ProtectHome"] == "yes"
    assert service["NoNewPrivileges"] == "yes" and service["CapabilityBoundingSet"] == ""
    assert service["StateDirectory"] == service["CacheDirectory"] == "nyala"
    assert service["Type"] == "notify" and service["TimeoutStartSec"] == "infinity"
    assert "--data /var/lib/nyala" in service["ExecStart"]
    assert "NYALA_CACHE_DIR=/var/cache/nyala" in service["Environment"].split()
    assert service["MemoryMax"].endswith("%") and int(service["TasksMax"]) <= 4096
    assert "MemoryDenyWriteExecute" not in service, "kernels are loaded into memory that is made executable"


def test_the_unit_waits_longer_than_the_server_takes_to_stop() -> None:
    from nyala.flight_server.settings.config import ServerConfig

    drain = ServerConfig().drain_seconds
    assert int(unit()["Service"]["TimeoutStopSec"]) > drain + 5
    assert int(SERVICES["nyala"]["stop_grace_period"].removesuffix("s")) > drain + 5


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd")
def test_systemd_takes_the_unit_and_finds_it_closed(tmp_path: Path) -> None:
    """The program is another one, since none is installed in /opt."""
    copy = tmp_path / "nyala.service"
    copy.write_text(UNIT.read_text().replace("/opt/nyala/bin/nyala", "/bin/true"))
    verified = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=120)
    assert verified.returncode == 0 and copy.name not in verified.stderr, verified.stderr
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", str(copy)]
    rated = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert rated.returncode == 0, rated.stdout + rated.stderr  # exposure of at most 2 of 10


def test_the_configuration_in_the_docs_is_one(tmp_path: Path) -> None:
    """The file that the unit names, as the page shows it, with its own files at another place."""
    from nyala.flight_server.settings.settings import read_settings

    page = (ROOT / "docs" / "deployment.md").read_text().partition("## With systemd")[2]
    text = page.partition("```toml\n")[2].partition("```")[0]
    assert tomllib.loads(text)["tokens"] == "/etc/nyala/tokens.json"
    (tmp_path / "nyala.toml").write_text(text)
    serve = read_settings({}, [], {}, tmp_path / "nyala.toml").serve
    assert serve.has_tls and serve.has_authentication and not serve.insecure
