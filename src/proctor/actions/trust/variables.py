"""The variables that a run may refer to: those of the environment, and beside them what `.env` files say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from proctor.actions.trust.trust import Trust
from proctor.actions.workspace.run_history import get_workspace_folder, is_workspace_folder
from proctor.report.words.wording import count_noun
from proctor.sources.dotenv import DOTENV_FILE, with_dotenv

_ADDRESSES = ("_BASE_URL", "_ENDPOINT", "_API_BASE", "_HOST", "_PROXY")
_OWN = "PROCTOR_"


def list_dotenv_files(home: Path, trust: Trust) -> list[Path]:
    """Return the `.env` files of the working directory and of the workspace, as far as they may be read."""
    places = dict.fromkeys(folder.resolve() for folder in (Path.cwd(), get_workspace_folder(home)))
    found = [place / DOTENV_FILE for place in places if trust.doing == "running" or trust.granted or is_workspace_folder(place)]
    return [file for file in found if file.is_file() and trust.may_read(file)]


def read_variables(environment: Mapping[str, str], home: Path, trust: Trust, announce: Callable[[str], None]) -> dict[str, str]:
    """Return the environment with what `.env` files say beside it; what is set stays as it is. Raises `InputError`.

    Addresses are not taken, nor what names a judge: whoever can write such a file could lead a key of the environment to themselves.
    """
    known = dict(environment)
    for file in list_dotenv_files(home, trust):
        new = {name: value for name, value in with_dotenv(known, [file]).items() if name not in known}
        # In any case of letters: HTTP clients read `http_proxy`, too.
        refused = [name for name in new if name.upper().endswith(_ADDRESSES) or name.upper().startswith(_OWN)]
        taken = {name: value for name, value in new.items() if name not in refused}
        if taken:
            announce(f"{count_noun(len(taken), 'variable')} taken from {file}; what the environment has counts more")
        if refused:
            announce(f"not taken from {file}: {', '.join(refused[:5])}; addresses come from the environment or proctor.yaml")
        known |= taken
    return known
