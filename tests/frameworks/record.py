"""Records the telemetry of real agent frameworks: `python -m tests.frameworks.record [NAME ...]`.

Each combination of `combinations.yaml` runs in an environment of its own under `.frameworks/`, against a scripted model and an OTLP
collector on loopback. Its requests go to `tests/evidence/frameworks/NAME.json`, the facts go to `truth.json` next to it, and the
framework's message lists go to `messages/`. A combination that does not follow the script is not written. Nothing here
uses a reader of proctor: the truth comes from the scripted model and the tools.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import yaml

from tests.frameworks import collector, model, truth

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENVIRONMENTS = Path(os.environ.get("PROCTOR_FRAMEWORKS") or ROOT / ".frameworks")
OUT = Path(os.environ.get("PROCTOR_RECORDINGS") or ROOT / "tests/evidence/frameworks")
PACKAGES = yaml.safe_load((HERE / "environments.yaml").read_text())
COMBINATIONS = yaml.safe_load((HERE / "combinations.yaml").read_text())


def complete_row(name: str) -> dict[str, Any]:
    """A row of the table, completed by the row it is `like`."""
    row = COMBINATIONS[name]
    if "like" not in row:
        return row
    base = complete_row(row["like"])
    merged = {key: {**(base.get(key) or {}), **(row.get(key) or {})} for key in ("settings", "env")}
    # The contents of a recording and its message lists are never inherited.
    return {**base, "messages": None, "carries": None, **row, **merged}


UV = os.environ.get("UV") or shutil.which("uv")
PATIENCE_S = 240


def make_environment(name: str) -> Path:
    """The Python of an environment, rebuilt if its packages have changed."""
    packages = [*PACKAGES["common"], *PACKAGES["environments"][name]]
    folder = ENVIRONMENTS / name
    python, stamp = folder / "bin/python", folder / ".packages"
    wanted = "\n".join(packages)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    if UV:
        subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
        subprocess.run([UV, "pip", "install", "--quiet", "--python", python, *packages], check=True)
    else:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], check=True)
    stamp.write_text(wanted)
    return python


def read_versions(python: Path, packages: list[str]) -> dict[str, str]:
    code = "import importlib.metadata as m, json, sys; print(json.dumps({p: m.version(p) for p in sys.argv[1:]}))"
    return json.loads(subprocess.run([python, "-c", code, *packages], check=True, capture_output=True, text=True).stdout)


def variables(row: dict[str, Any], name: str, ports: dict[str, int], folder: str) -> dict[str, str]:
    """The environment of a driver: no variable of the caller that could lead it to a real provider."""
    keep = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "SSL_CERT_FILE")}
    otlp = f"http://127.0.0.1:{ports['otlp']}"
    given = {k: str(v).format(**ports) for k, v in (row.get("env") or {}).items()}
    keys = ("OPENAI", "ANTHROPIC", "GOOGLE", "GEMINI", "MISTRAL", "GROQ", "COHERE", "TOGETHER", "CO", "LANGSMITH", "PORTKEY")
    return {
        **keep,
        **{f"{provider}_API_KEY": "sk-none" for provider in keys if provider != "GEMINI"},
        "HOME": folder,
        "PYTHONPATH": str(ROOT),
        "COMBINATION": json.dumps({"name": name, **row}),
        "SCENARIOS": os.environ.get("SCENARIOS", ""),
        "SHOP_LOG": f"{folder}/tools.jsonl",
        "MODEL_URL": f"http://127.0.0.1:{ports['model']}",
        "OTLP_URL": otlp,
        "OTEL_EXPORTER_OTLP_ENDPOINT": otlp,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_SERVICE_NAME": name,
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": "*",
        **given,
    }


def drive(python: Path, name: str, row: dict[str, Any], folder: str) -> tuple[model.Script, collector.Collector, dict[str, Any], int]:
    """Run the driver; return its messages, the model's replies and the exports."""
    script, exports = model.Script((row.get("settings") or {}).get("style", "calls")), collector.Collector()
    servers = model.serve(script), collector.serve(exports)
    ports = {"model": servers[0].server_address[1], "otlp": servers[1].server_address[1]}
    command = [str(python), "-m", "tests.frameworks.drive"]
    messages: dict[str, Any] = {}
    with open(f"{folder}/errors.txt", "w") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables(row, name, ports, folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        timer = threading.Timer(PATIENCE_S, process.kill)
        timer.start()
        assert process.stdin and process.stdout
        for line in process.stdout:
            if "\x1e" not in line:
                continue
            message = json.loads(line.partition("\x1e")[2])
            if message["word"] == "begin":
                script.begin(message["scenario"])
                exports.scenario = message["scenario"]
            elif message["word"] == "end":
                exports.scenario = ""
            else:
                messages = message["documents"]
            process.stdin.write("\n")
            process.stdin.flush()
        code = process.wait()
        timer.cancel()
    for server in servers:
        server.shutdown()
        server.server_close()
    return script, exports, messages, code


def record(name: str, row: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Record one combination; returns the problems and the truth."""
    python = make_environment(row["environment"])
    with tempfile.TemporaryDirectory() as folder:
        script, exports, messages, code = drive(python, name, row, folder)
        errors = Path(folder, "errors.txt").read_text()
        log = Path(folder, "tools.jsonl")
        tools = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    scrub = make_scrubber(name, row, folder)
    requests = [(scenario, scrub.request(request)) for scenario, request in exports.requests]
    happened = truth.happened(script, [*tools, *script.tools])
    trouble = [f"{scenario}: {problem}" for scenario, problem in truth.problems(happened, script)]
    about = {"framework": row["framework"], "instrumentation": row["instrumentation"], "versions": read_versions(python, row["versions"])}
    entry = {**about, **truth.entry(requests, happened, row)}
    if code or trouble:
        (ENVIRONMENTS / f"{name}.errors.txt").write_text(errors)
        return "; ".join([*trouble, f"the driver ended with {code}: {errors.strip()[-1500:]}"]), entry
    if entry["traces"]:
        write(name, [request for _, request in requests], entry)
    for kind, documents in messages.items():
        if kind in (row.get("messages") or {}):
            write_messages(kind, {scenario: scrub.value(document) for scenario, document in documents.items()}, happened, row)
    return "", entry


def make_scrubber(name: str, row: dict[str, Any], folder: str) -> collector.Scrubber:
    """Folders of this machine and their replacements."""
    environment, home = str(ENVIRONMENTS / row["environment"]), str(Path.home())
    shown = [(environment, "/app/.venv"), (str(ROOT), "/app"), (folder, "/home/app"), (sys.base_prefix, "/usr"), (home, "/home/app")]
    return collector.Scrubber(shown, name)


def write(name: str, requests: list[dict[str, Any]], entry: dict[str, Any]) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(
        "[\n" + ",\n".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) for r in requests) + "\n]\n"
    )
    update(OUT / "truth.json", name, entry)


def write_messages(kind: str, documents: dict[str, Any], happened: dict[str, Any], row: dict[str, Any]) -> None:
    folder = OUT / "messages"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{kind}.json").write_text(json.dumps(documents, ensure_ascii=False, indent=1) + "\n")
    about = (row.get("messages") or {}).get(kind) or {}
    update(folder / "truth.json", kind, truth.message_entry(documents, happened, about))


def update(path: Path, name: str, entry: dict[str, Any]) -> None:
    with open(path, "a+", encoding="utf-8") as file:
        # Several recorders may run at once, each for different combinations.
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        known = json.loads(file.read() or "{}")
        known[name] = entry
        file.truncate(0)
        file.write(json.dumps(dict(sorted(known.items())), ensure_ascii=False, indent=1) + "\n")


def main(arguments: list[str]) -> int:
    names = [a for a in arguments if not a.startswith("-")] or list(COMBINATIONS)
    bad = 0
    for name in names:
        row = complete_row(name)
        try:
            trouble, entry = record(name, row)
        except subprocess.CalledProcessError as error:
            trouble, entry = f"the environment cannot be made: {error}", None
        print(f"{name}: {trouble or 'recorded'}\n{truth.summary(entry)}", flush=True)
        bad += bool(trouble)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
