"""The simulated systems that a case gives to its agent, as a suite writes them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from proctor.model.evidence import Json

LONGEST_S = 1e7
"""The latest time of a step, in seconds."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """An event in a system, before the agent begins or later: a file arrives."""

    name: str
    given: Json = None
    after_s: float = 0.0
    """Seconds after the start; it takes effect with the next request to the system."""


class System(msgspec.Struct, frozen=True, kw_only=True):
    """One simulated system of a case."""

    name: str
    """Its name in the suite; the variables `NAME_url` and `NAME_token` lead to it."""
    kind: str
    seed: Json = None
    """Its initial content, in the format of its kind."""
    datasets: tuple[Json, ...] = ()
    """Further seeds, each added to those before."""
    scenario: tuple[Step, ...] = ()

    @property
    def wants_mllp(self) -> bool:
        """Whether it also takes messages over MLLP, on a port of its own."""
        return self.kind == "hl7" and isinstance(self.seed, dict) and self.seed.get("mllp") is True

    @property
    def wants_sftp(self) -> bool:
        """Whether its files are also reached over SFTP, on a port of its own."""
        return self.kind == "files" and isinstance(self.seed, dict) and self.seed.get("sftp") is True


def list_variables(systems: Iterable[System]) -> tuple[str, ...]:
    """Return the variables of an attempt for its systems: address, token, and the ports for MLLP and SFTP if requested."""
    found: list[str] = []
    for system in systems:
        ports = (*(("mllp",) if system.wants_mllp else ()), *(("sftp",) if system.wants_sftp else ()))
        found += [f"{system.name}_{what}" for what in ("url", "token", *ports)]
    return tuple(found)
