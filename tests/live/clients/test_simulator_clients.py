"""The simulated systems, used by third-party clients: MLLP, `pyx12`, messaging SDKs, `pypdf`, a real browser."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from proctor.model.case import System
from proctor.simulators.kinds.fax import write_pdf
from tests.foreign import install_from_index, install_from_npm
from tests.live.browser.accessibility import find_flaws
from tests.live.browser.chromium import CHROMIUM, launch_chromium
from tests.live.clients.simulated_sites import Site, run
from tests.simulators import test_portal, test_voice, test_x12

CLIENTS = ("hl7==0.4.5", "pyx12==4.0.0", "twilio==9.13.0", "telnyx==4.189.0", "pypdf==7.0.1")
AXE = "axe-core@4.14.0"
pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]


@pytest.fixture(scope="session")
def clients(pytestconfig: pytest.Config) -> Path:
    """The `bin` of an environment with the clients."""
    return install_from_index(Path(pytestconfig.cache.mkdir("live-simulator-clients")), *CLIENTS)  # type: ignore[union-attr]


@pytest.fixture(scope="session")
def axe(pytestconfig: pytest.Config) -> str:
    folder = Path(pytestconfig.cache.mkdir("live-npm-axe"))  # type: ignore[union-attr]
    return (install_from_npm(folder, AXE) / "axe-core/axe.min.js").read_text(encoding="utf-8")


def test_mllp_send_is_acknowledged(sites: Any, clients: Path, tmp_path: Path) -> None:
    site: Site = sites(System(name="feed", kind="hl7", seed={"mllp": True, "accepts": ["ADT"]}))
    host, _, port = site.variables["feed_mllp"].partition(":")
    header = "MSH|^~\\&|A|B|C|D|2026||%s|C-%d|P|2.5\r\nPID|1||17||Müller^Ann\r\n"
    (tmp_path / "two.hl7").write_text(header % ("ADT^A01", 1) + header % ("ORU^R01", 2), newline="")
    output = run(clients / "mllp_send", "--port", port, "--file", tmp_path / "two.hl7", "--loose", host)
    assert "MSA|AA|C-1" in output and "MSA|AR|C-2|ORU^R01" not in output and "MSA|AR|C-2|" in output
    (stored,) = site.state().hl7.outbound
    assert "Müller^Ann" in stored


NODE = """
import Client, { HL7_2_5 } from "node-hl7-client";

const message = new HL7_2_5()
  .buildMSH({ msh_3: "MY_APP", msh_4: "MY_FAC", msh_5: "EHR", msh_6: "HOSP", msh_9_1: "ADT", msh_9_2: "A01", msh_10: "N-1", msh_11_1: "P" })
  .buildEVN({ evn_1: "A01" })
  .buildPID({ pid_3: "17", pid_5: "Smith^Ann" })
  .toMessage();
const client = new Client({ host: "127.0.0.1", version: "2.5" });
const connection = client.createConnection({ port: Number(process.env.PORT) }, async (answer) => {
  console.log(answer.getMessage().get("MSA.1").toString(), answer.getMessage().get("MSA.2").toString());
  process.exit(0);
});
await connection.sendMessage(message);
"""


def test_a_client_for_node_is_acknowledged(sites: Any, pytestconfig: pytest.Config) -> None:
    modules = install_from_npm(Path(pytestconfig.cache.mkdir("live-npm-hl7")), "node-hl7-client@4.0.0")  # type: ignore[union-attr]
    site: Site = sites(System(name="feed", kind="hl7", seed={"mllp": True}))
    program = modules.parent / "send.mjs"
    program.write_text(NODE)
    assert run("node", program, PORT=site.variables["feed_mllp"].partition(":")[2]) == "AA N-1\n"
    assert "Smith^Ann" in site.state().hl7.outbound[0]


def test_pyx12_agrees_with_what_is_written(sites: Any, clients: Path, tmp_path: Path) -> None:
    """It has a map of 5010 for 999 only; 271 and 277 are checked against those of 4010, from which 5010 differs in two places of 277."""
    site: Site = sites(System(name="house", kind="x12", seed=test_x12.SEED))

    def answer(name: str, edi: str, *changes: tuple[str, str]) -> str:
        headers = {"authorization": f"Bearer {site.place.token}", "content-type": "application/edi-x12"}
        with urlopen(Request(site.variables["house_url"], edi.encode(), headers), timeout=10) as answered:
            text = answered.read().decode()
        for old, new in changes:
            text = text.replace(old, new)
        (tmp_path / name).write_text(text)
        done = subprocess.run([clients / "x12valid", tmp_path / name], capture_output=True, text=True, timeout=60, check=False)
        return done.stdout + done.stderr

    older = ("^*00501", "U*00401")
    assert answer("999.edi", test_x12.interchange("270", "BHT*1~HL*1~")).endswith("999.edi: OK\n")
    output = answer(
        "271.edi",
        test_x12.inquiry().replace("9ORIGIN", "9876543210"),
        older,
        ("*X*005010X279A1", "*X*004010X092A1"),
        ("*0001*005010X279A1", "*0001"),
    )
    assert output.endswith("271.edi: OK\n"), output
    claim = "BHT*0010*13*R*20261116*0930~HL*1**20*1~NM1*PR*2*ACME*****PI*1~HL*4*3*22*0~NM1*IL*1*SMITH*ANN****MI*W1~TRN*1*T-9~REF*1K*C-7~"
    output = answer(
        "277.edi", test_x12.interchange("276", claim), older, ("*X*005010X212", "*X*004010X093A1"), ("*0001*005010X212", "*0001")
    )
    errors = [line.partition("ERROR ")[2] for line in output.splitlines() if "ERROR" in line]
    assert [error.partition(" - ")[2][:30] for error in errors] == ['Data element "Time" (BHT05) is', "Segment DTP*472 not found.  St"], (
        output
    )


TWILIO = """
import os
from twilio.base.exceptions import TwilioRestException
from twilio.rest import Client

client = Client("AC1", os.environ["PHONE_TOKEN"])
client.api.base_url = os.environ["PHONE_URL"]
sent = client.messages.create(to="+15550101", from_="+15550100", body="Tuesday & ten?")
print(sent.status, client.messages(sent.sid).fetch().body)
print([(one.direction, one.body) for one in client.messages.list(to="+15550100")])
try:
    client.messages.create(to="nobody", from_="+15550100", body="x")
except TwilioRestException as error:
    print(error.code)
wrong = Client("AC1", "guess")
wrong.api.base_url = os.environ["PHONE_URL"]
try:
    wrong.messages("SM1").fetch()
except TwilioRestException as error:
    print(error.status)
"""


def test_the_sdk_of_twilio_sends_reads_and_is_refused(sites: Any, clients: Path) -> None:
    people = [{"id": "ann", "phone": "+15550101", "answers": [{"when": "tuesday", "say": "Yes."}]}]
    site: Site = sites(System(name="phone", kind="messages", seed={"people": people}))
    output = run(clients / "python", "-c", TWILIO, PHONE_URL=site.variables["phone_url"], PHONE_TOKEN=site.place.token)
    assert output.splitlines() == ["queued Tuesday & ten?", "[('inbound', 'Yes.')]", "21211", "401"]
    assert [one["text"] for one in site.state().messages.messages] == ["Tuesday & ten?", "Yes."]


TWILIO_CALLS = """
import os, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl
from twilio.base.exceptions import TwilioRestException
from twilio.request_validator import RequestValidator
from twilio.rest import Client
from twilio.twiml.voice_response import Gather, VoiceResponse

token = os.environ["PHONE_TOKEN"]
signed, statuses, heard = [], [], []


class Webhooks(BaseHTTPRequestHandler):
    def do_POST(self):
        fields = dict(parse_qsl(self.rfile.read(int(self.headers["content-length"])).decode(), keep_blank_values=True))
        signature = self.headers["X-Twilio-Signature"]
        signed.append(RequestValidator(token).validate(address + self.path, fields, signature))
        signed.append(not RequestValidator("guess").validate(address + self.path, fields, signature))
        answer = VoiceResponse()
        if self.path == "/status":
            statuses.append(fields["CallStatus"])
        elif self.path == "/begin":
            answer.play(digits="1")
            answer.gather(input="speech", action="/heard")
        elif "member id" in fields["SpeechResult"]:
            heard.append(fields["SpeechResult"])
            gather = Gather(input="speech", action="/heard")
            gather.say("W 12345")
            answer.append(gather)
        else:
            heard.append(fields["SpeechResult"])
            answer.hangup()
        body = str(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "text/xml")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Webhooks)
address = f"http://127.0.0.1:{server.server_address[1]}"
threading.Thread(target=server.serve_forever, daemon=True).start()
client = Client("AC1", token)
client.api.base_url = os.environ["PHONE_URL"]
call = client.calls.create(
    to="+18005550100", from_="+15550100", url=address + "/begin",
    status_callback=address + "/status", status_callback_event=["ringing", "answered", "completed"],
)
print(call.status)
while "completed" not in statuses:
    time.sleep(0.05)
print(client.calls(call.sid).fetch().status, [one.sid == call.sid for one in client.calls.list(status="completed")])
print(all(signed), statuses)
print(heard)
try:
    client.calls(call.sid).update(status="completed")
except TwilioRestException as error:
    print(error.code)
"""


def test_the_sdk_of_twilio_controls_a_call_by_webhooks(sites: Any, clients: Path) -> None:
    site: Site = sites(System(name="phone", kind="voice", seed={"lines": [{"number": "+18005550100", "ivr": test_voice.IVR}]}))
    output = run(clients / "python", "-c", TWILIO_CALLS, PHONE_URL=site.variables["phone_url"], PHONE_TOKEN=site.place.token)
    assert output.splitlines() == [
        "queued",
        "completed [True]",
        "True ['ringing', 'in-progress', 'completed']",
        "['Welcome. For benefits press 1. Enter the member id.', 'The coverage is active. Goodbye.']",
        "21220",
    ]
    assert [(turn.speaker, turn.text) for turn in site.state().voice.turns][-2:] == [
        ("agent", "W 12345"),
        ("caller", "The coverage is active. Goodbye."),
    ]


TELNYX = """
import os
import telnyx

client = telnyx.Telnyx(api_key=os.environ["PHONE_TOKEN"], base_url=os.environ["PHONE_URL"] + "/v2", max_retries=0)
sent = client.messages.send(from_="+15550100", to="+15550101", text="Tuesday?").data
print(sent.to[0].status, client.messages.retrieve(sent.id).data.text)
try:
    client.messages.send(from_="+15550100", to="nobody", text="x")
except telnyx.APIStatusError as error:
    print(error.status_code)
"""


@pytest.mark.in_turn
def test_the_sdk_of_telnyx_sends_reads_and_is_refused(sites: Any, clients: Path) -> None:
    site: Site = sites(System(name="phone", kind="messages", seed={"answers": ["Yes."]}))
    output = run(clients / "python", "-c", TELNYX, PHONE_URL=site.variables["phone_url"], PHONE_TOKEN=site.place.token)
    assert output.splitlines() == ["queued Tuesday?", "422"]


def test_pypdf_reads_what_is_written(clients: Path, tmp_path: Path) -> None:
    (tmp_path / "fax.pdf").write_bytes(write_pdf("Referral of Ann Müller (DOB 1980-02-01)\n" + "line\n" * 100))
    program = "import pypdf, sys; pages = pypdf.PdfReader(sys.argv[1]).pages; print(len(pages), pages[0].extract_text().splitlines()[0])"
    assert run(clients / "python", "-c", program, tmp_path / "fax.pdf") == "2 Referral of Ann Müller (DOB 1980-02-01)\n"


@pytest.fixture
def page() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no chromium is installed")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        opened = launch_chromium(started)
        yield opened.new_page()
        opened.close()


WIZARDS = {
    "radmd": [
        {"Member ID": "W1"},
        {"NPI of the ordering provider": "1234567893"},
        {"Procedure code (CPT)": "70551", "Diagnosis code (ICD-10)": "R51.9"},
        {"Clinical information (optional)": "Headache since May"},
    ],
    "covermymeds": [
        {"Member ID": "W1"},
        {"Medication": "Humira 40 mg", "Quantity": "2", "Days of supply": "28"},
        {"NPI of the ordering provider": "1234567893"},
        {"Diagnosis code (ICD-10)": "M05.79"},
    ],
}


@pytest.mark.in_turn
@pytest.mark.parametrize("portal", WIZARDS)
def test_a_browser_completes_the_wizard(sites: Any, page: Any, axe: str, portal: str) -> None:
    site: Site = sites(System(name="payer", kind="portal", seed={**test_portal.SEED, "portal": portal, "password": ""}))
    page.goto(f"{site.variables['payer_url']}/login")
    page.get_by_label("User name").fill("agent")
    page.get_by_label("Password").fill(site.place.token)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="New request").click()
    page.get_by_role("button", name="Continue").click()
    assert "enter a value" in page.get_by_role("alert").inner_text()
    flaws = find_flaws(page, axe, "a step with a problem") if portal == "radmd" else []
    for step in WIZARDS[portal]:
        for label, value in step.items():
            page.get_by_label(label).fill(value)
        page.get_by_role("button", name="Continue").click()
    assert "Review" in page.inner_text("main")
    page.get_by_role("button", name="Submit request").click()
    wanted = "approved" if portal == "radmd" else "pending"
    assert wanted in page.inner_text("h1")
    # Opening the last step again redirects to the request.
    page.go_back()
    assert wanted in page.inner_text("h1")
    (row,) = site.state().portal["prior_auth_requests"]
    assert (row["status"], row["patient_name"], row["portal"]) == (wanted, "Ann Smith", portal)
    page.get_by_role("link", name="Requests").click()
    assert row["auth_number"] in page.inner_text("table")
    assert flaws == [] and (portal != "radmd" or find_flaws(page, axe, "requests") == [])
