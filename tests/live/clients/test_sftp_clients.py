"""The file drop, used over SFTP by third-party clients: OpenSSH, `paramiko`, `ssh2-sftp-client`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from proctor.model.case import System
from tests.foreign import install_from_index, install_from_npm
from tests.live.clients.simulated_sites import Site, run

pytest.importorskip("asyncssh")
pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]
LARGE = bytes(range(256)) * 8_000
"""More than one packet, and no text."""


@pytest.fixture
def site(sites: Any) -> Site:
    return sites(System(name="drop", kind="files", seed={"sftp": True, "inbox/referral.json": {"id": 17}}))


def list_events(site: Site) -> list[tuple[str, str, int]]:
    return [(one.method, one.path, one.status) for one in site.state().requests]


def read_files(site: Site) -> dict[str, str]:
    return {one.path: one.content for one in site.state().files}


def ask_openssh(site: Site, folder: Path, *commands: str, password: str = "") -> tuple[int, str]:
    """Run OpenSSH's client as a program does that has no terminal: it asks another program for the password."""
    if shutil.which("sftp") is None:
        pytest.skip("OpenSSH's sftp is not installed")
    askpass = folder / "askpass"
    askpass.write_text('#!/bin/sh\necho "$DROP_TOKEN"\n')
    askpass.chmod(0o700)
    port = site.variables["drop_sftp"].partition(":")[2]
    # The first word of an option counts, so that `-b` does not forbid to ask for a password.
    options = (
        "BatchMode=no",
        "StrictHostKeyChecking=no",
        f"UserKnownHostsFile={folder / 'hosts'}",
        "NumberOfPasswordPrompts=1",
        "LogLevel=ERROR",
    )
    done = subprocess.run(
        [
            "sftp",
            "-F",
            "none",
            "-P",
            port,
            *(part for one in options for part in ("-o", one)),
            "-b",
            "-",
            "agent@127.0.0.1",
        ],
        input="\n".join(commands) + "\n",
        env={**os.environ, "SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force", "DROP_TOKEN": password or site.place.token},
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_openssh_reads_writes_and_is_confined(site: Site, tmp_path: Path) -> None:
    (tmp_path / "scan.pdf").write_bytes(LARGE)
    commands = ("get inbox/referral.json", "mkdir outbox", "put scan.pdf outbox/scan.part", "rename outbox/scan.part outbox/scan.pdf")
    status, output = ask_openssh(
        site, tmp_path, *commands, "get outbox/scan.pdf back.pdf", "ls -l outbox", "cd ..", "pwd", "rm inbox/referral.json"
    )
    assert status == 0, output
    assert (tmp_path / "referral.json").read_text() == '{"id":17}' and (tmp_path / "back.pdf").read_bytes() == LARGE
    assert "agent    agent     2048000" in output and "working directory: /\n" in output
    assert list(read_files(site)) == ["outbox/scan.pdf"]
    assert [event[:2] for event in list_events(site)] == [
        ("GET", "/inbox/referral.json"),
        ("PUT", "/outbox/scan.part"),
        ("MOVE", "/outbox/scan.part?to=outbox/scan.pdf"),
        ("GET", "/outbox/scan.pdf"),
        ("GET", "/?prefix=outbox/"),
        ("DELETE", "/inbox/referral.json"),
    ]
    for command in ("get ../../etc/passwd", "ln -s /etc/passwd inbox/link", "get /etc/passwd"):
        assert ask_openssh(site, tmp_path, command)[0] == 1
    assert ("GET", "/../../etc/passwd", 400) in list_events(site)
    assert not (tmp_path / "passwd").exists()
    status, output = ask_openssh(site, tmp_path, "ls", password="guess")
    assert status == 255 and "Permission denied" in output


PARAMIKO = """
import io, os, paramiko

host, _, port = os.environ["DROP_SFTP"].partition(":")
ssh = paramiko.SSHClient()
ssh.set_missing_host_key_policy(paramiko.AutoAddPolicy())
ssh.connect(host, int(port), username="agent", password=os.environ["DROP_TOKEN"], look_for_keys=False, allow_agent=False)
drop = ssh.open_sftp()
print(drop.listdir("inbox"), drop.stat("inbox/referral.json").st_size, drop.open("inbox/referral.json").read())
drop.chdir("inbox")
drop.putfo(io.BytesIO(b"a,b\\n" * 20_000), "../claims.csv")
with drop.open("/claims.csv", "a") as file:
    file.write("end")
for path in ("../../etc/passwd", "none"):
    try:
        drop.open(path)
    except OSError as error:
        print(type(error).__name__, error)
drop.remove("referral.json")
ssh.close()
"""


def test_paramiko_reads_and_writes(site: Site, pytestconfig: pytest.Config) -> None:
    clients = install_from_index(Path(pytestconfig.cache.mkdir("live-paramiko")), "paramiko==5.1.0")  # type: ignore[union-attr]
    output = run(clients / "python", "-c", PARAMIKO, DROP_SFTP=site.variables["drop_sftp"], DROP_TOKEN=site.place.token)
    assert output.splitlines() == [
        "['referral.json'] 9 b'{\"id\":17}'",
        'PermissionError [Errno 13] not a path inside the drop: "inbox/../../etc/passwd"',
        'FileNotFoundError [Errno 2] there is no file "inbox/none"',
    ]
    assert read_files(site) == {"claims.csv": "a,b\n" * 20_000 + "end"}


NODE = """
import Client from "ssh2-sftp-client";

const drop = new Client();
const [host, port] = process.env.DROP_SFTP.split(":");
await drop.connect({ host, port: Number(port), username: "agent", password: process.env.DROP_TOKEN });
console.log((await drop.list("/inbox")).map((one) => [one.type, one.name, one.size]));
console.log((await drop.get("/inbox/referral.json")).toString());
await drop.mkdir("/outbox/2026", true);
await drop.put(Buffer.from("claim"), "/outbox/2026/claim.part");
await drop.posixRename("/outbox/2026/claim.part", "/outbox/2026/claim.txt");
await drop.append(Buffer.from("!"), "/outbox/2026/claim.txt");
console.log(await drop.exists("/outbox/2026/claim.txt"), await drop.exists("/outbox"), await drop.exists("/etc"));
await drop.delete("/inbox/referral.json");
await drop.end();
"""


@pytest.mark.on_request
def test_a_client_for_node_reads_and_writes(site: Site, pytestconfig: pytest.Config) -> None:
    modules = install_from_npm(Path(pytestconfig.cache.mkdir("live-npm-sftp")), "ssh2-sftp-client@12.1.1")  # type: ignore[union-attr]
    program = modules.parent / "drop.mjs"
    program.write_text(NODE)
    output = run("node", program, DROP_SFTP=site.variables["drop_sftp"], DROP_TOKEN=site.place.token)
    assert output.splitlines() == ["[ [ '-', 'referral.json', 9 ] ]", '{"id":17}', "- d false"]
    assert read_files(site) == {"outbox/2026/claim.txt": "claim!"}
