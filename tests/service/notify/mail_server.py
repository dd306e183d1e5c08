"""A mail server on loopback with STARTTLS, TLS and logins; it stores accepted mail."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class MailServer:
    """The received commands, and the answers to them."""

    def __init__(self, certificate: Path | None, *, tls: bool, login: str | None, refuse: str, silent: bool) -> None:
        self.mails: list[EmailMessage] = []
        self.recipients: list[str] = []
        self.commands: list[str] = []
        self.port = 0
        self.talks: set[asyncio.Task[object]] = set()
        self._tls, self._login, self._refuse, self._silent = tls, login, refuse, silent
        self.context: ssl.SSLContext | None = None
        if certificate is not None:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(certificate)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.talks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._talk(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._silent:
            await reader.read()
            return

        def say(text: str) -> None:
            writer.write(f"{text}\r\n".encode())

        say("220 mail.test")
        encrypted, known = self._tls, self._login is None
        while line := (await reader.readline()).decode().strip():
            word = line.split()[0].upper()
            self.commands.append(line)
            if self._refuse and line.upper().startswith(self._refuse):
                say("550 no such user here" if self._refuse == "RCPT" else "451 try again later")
            elif word in ("EHLO", "HELO"):
                offers = ["mail.test", *([] if encrypted or self.context is None else ["STARTTLS"]), "AUTH PLAIN"]
                for offer in offers[:-1]:
                    say(f"250-{offer}")
                say(f"250 {offers[-1]}")
            elif word == "STARTTLS":
                say("220 go ahead")
                await writer.drain()
                assert self.context is not None
                await writer.start_tls(self.context)
                encrypted = True
            elif word == "AUTH":
                assert encrypted, "a password in clear text"
                known = base64.b64decode(line.split()[2]).decode().split("\0")[1:] == (self._login or "").split(":")
                say("235 welcome" if known else "535 wrong password")
            elif word == "DATA":
                say("354 go on")
                await writer.drain()
                body = await reader.readuntil(b"\r\n.\r\n")
                self.mails.append(message_from_bytes(body[:-3], policy=policy.default))  # type: ignore[arg-type]  # the default makes these
                say("250 kept")
            elif not known and word != "QUIT":
                say("530 log in first")
            else:
                if word == "RCPT":
                    self.recipients.append(line.split("<")[1].split(">")[0])
                say("221 bye" if word == "QUIT" else "250 ok")
            await writer.drain()
            if word == "QUIT":
                return


@contextlib.asynccontextmanager
async def mail_server(
    certificate: Path | None = None, *, tls: bool = False, login: str | None = None, refuse: str = "", silent: bool = False
) -> AsyncIterator[MailServer]:
    """A server; `refuse` is a command that it refuses."""
    server = MailServer(certificate, tls=tls, login=login, refuse=refuse, silent=silent)
    listening = await asyncio.start_server(server.talk, "127.0.0.1", 0, ssl=server.context if tls else None)
    async with listening:
        server.port = listening.sockets[0].getsockname()[1]
        yield server
        for task in server.talks:
            task.cancel()
        await asyncio.gather(*server.talks, return_exceptions=True)


def make_certificate(folder: Path) -> Path:
    """A certificate of 127.0.0.1 that signs itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    plain = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(plain + made.public_bytes(serialization.Encoding.PEM))
    return path
