"""Builds the models and servers of an MCPLab workspace from its settings and the environment they refer to.

Only a whole value `${NAME}` is taken from the environment, in `auth.token`, `auth.value` and in the values of `headers`; a variable that
is not set, or empty, is an error before the run. Every problem is collected; none of them shows a value. An agent without its key fails
alone if others have theirs. On the command line `.env` files of the workspace complete the environment. A service that runs the suites
of others passes the secrets of the project as environment, its own wording for missing variables, and its own transports.

    openai         OPENAI_API_KEY, OPENAI_BASE_URL
    anthropic      ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL
    azure_openai   AZURE_OPENAI_API_KEY, AZURE_OPENAI_ENDPOINT, AZURE_OPENAI_API_VERSION; the deployment is that of
                   AZURE_OPENAI_DEPLOYMENT_<AGENT>, else of AZURE_OPENAI_DEPLOYMENT, else the agent's model
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from proctor.actions.mcplab.files import SETTINGS_FILE, find_suite_root, variables_of
from proctor.actions.mcplab.plan import Entry
from proctor.actions.workspace.models import PROVIDER_VARIABLES as MODEL_VARIABLES
from proctor.actions.workspace.settings import COMMAND_LINE, Surroundings
from proctor.errors import InputError, SpecError
from proctor.formats.text.documents import read_text
from proctor.formats.text.located import Reading
from proctor.judge.settings import JudgeSettings
from proctor.llm.build import build_model
from proctor.llm.ports import ChatModel
from proctor.llm.settings import ModelSettings
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.problem import Problem
from proctor.model.show import suggest_one
from proctor.sources.texts import read_suite_text
from proctor.sources.workspaces import load_library
from proctor.targets.mcp.settings import ApiKey, Auth, Bearer, ClientCredentials, ServerFault, ServerSettings

# provider: the variables of its key and of its address
PROVIDER_VARIABLES: Final = {name: MODEL_VARIABLES[name.removesuffix("_openai")] for name in ("openai", "anthropic", "azure_openai")}
_WHOLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NOT_SENT: Final = "replayed"


class Access:
    """Builds models and servers, and remembers what was wrong and what is secret."""

    def __init__(
        self, environment: Mapping[str, str], *, tokens: Mapping[str, str], offline: bool, surroundings: Surroundings = COMMAND_LINE
    ) -> None:
        self._environment = environment
        self._tokens = tokens
        self._offline = offline
        self._surroundings = surroundings
        self.problems: list[Problem] = []
        self.secrets: set[str] = {token for token in tokens.values() if token}

    def models(self, agents: Mapping[str, Entry]) -> tuple[dict[str, ChatModel], dict[str, str]]:
        """Return the models of the agents, and the reason for each agent without one. It is a problem only if no agent has one."""
        models: dict[str, ChatModel] = {}
        lacking: dict[str, list[Problem]] = {}
        for name, agent in agents.items():
            before = len(self.problems)
            model = self.model(agent)
            if model is not None:
                models[name] = model
            else:
                lacking[name] = self.problems[before:]
                del self.problems[before:]
        if not models:
            self.problems.extend(problem for problems in lacking.values() for problem in problems)
        return models, {
            name: "; ".join((problem.message if problem.hint is None else f"{problem.message}: {problem.hint}") for problem in problems)
            for name, problems in lacking.items()
        }

    def finish(self) -> None:
        """Raise `InputError` with all collected problems."""
        if self.problems:
            raise InputError(self.problems[0].message, self.problems)

    def model(self, agent: Entry) -> ChatModel | None:
        """Return the model of an agent, or None after a problem."""
        provider, name = agent["provider"], agent["id"]
        key_name, address_name = PROVIDER_VARIABLES[provider]
        key, address = self._environment.get(key_name) or None, self._environment.get(address_name) or None
        if self._offline:
            # Everything comes from a recording: neither key nor address is used.
            key, address = _NOT_SENT, "https://replayed.invalid"
        elif provider == "azure_openai" and address is None:
            self._needs(name, address_name, "https://...")
            return None
        # A custom address, such as a local server, may need no key; Azure always does.
        elif key is None and (address is None or provider == "azure_openai"):
            self._needs(name, key_name, "...")
            return None
        if key is not None and not self._offline:
            self.secrets.add(key)
        azure = provider == "azure_openai"
        settings = ModelSettings(
            provider=provider,
            model=agent["model"],
            api_key=key,
            base_url=address,
            deployment=self._find_deployment(agent) if azure else None,
            api_version=(self._environment.get("AZURE_OPENAI_API_VERSION") or None) if azure else None,
        )
        try:
            return build_model(settings, transport=self._surroundings.model_transport)
        except SpecError as error:
            self._add_problem(f"agent {name!r}: {error.message}")
            return None

    def _needs(self, agent: str, name: str, value: str) -> None:
        surroundings = self._surroundings
        message = f"agent {agent!r} needs {surroundings.variable.format(name=name)}"
        self._add_problem(message, hint=surroundings.remedy.format(name=name, value=value), code="missing_variable")

    def _find_deployment(self, agent: Entry) -> str:
        variable = "AZURE_OPENAI_DEPLOYMENT_" + re.sub(r"[^A-Z0-9]+", "_", agent["id"].upper()).strip("_")
        return self._environment.get(variable) or self._environment.get("AZURE_OPENAI_DEPLOYMENT") or agent["model"]

    def server(self, entry: Entry) -> ServerSettings | None:
        """Return how a server is reached, or None after a problem."""
        name: str = entry["id"]
        if self._offline:
            return ServerSettings(id=name, transport="http", url=entry["url"], session=entry.get("session") or "attempt")
        before = len(self.problems)
        headers = {key: self._read_value(value, name, f"header {key}") for key, value in (entry.get("headers") or {}).items()}
        auth = self._read_auth(name, entry.get("auth"))
        if len(self.problems) > before:
            return None
        session = entry.get("session") or "attempt"
        # MCPLab uses the handshake, so that servers can have a session; the protocol without a handshake has none.
        settings = ServerSettings(id=name, transport="http", url=entry["url"], headers=headers, auth=auth, session=session, era="handshake")
        try:
            settings.check()
        except ServerFault as fault:
            self._add_problem(fault.message)
            return None
        self.secrets.update(settings.list_secrets())
        return settings

    def _read_auth(self, server: str, auth: Json) -> Auth | None:
        if server in self._tokens:
            return Bearer(token=self._tokens[server])
        if auth is None:
            return None
        match auth["type"]:
            case "bearer":
                token = self._read_value(auth["token"], server, "bearer token") if "token" in auth else self._find_env(auth["env"], server)
                return Bearer(token=token)
            case "api_key":
                return ApiKey(value=self._read_value(auth["value"], server, "API key"), header_name=auth.get("header_name") or "X-API-Key")
            case "oauth_client_credentials":
                return ClientCredentials(
                    token_url=auth["token_url"],
                    client_id=self._find_env(auth["client_id_env"], server, "client id"),
                    client_secret=self._find_env(auth["client_secret_env"], server, "client secret"),
                    scope=auth.get("scope"),
                    audience=auth.get("audience"),
                    token_params={key: _form_text(value) for key, value in (auth.get("token_params") or {}).items()},
                )
            case _:
                self._add_problem(
                    f"MCP server {server!r} needs an OAuth login, which is not possible here",
                    hint=self._surroundings.login.format(server=server),
                    code="oauth_login_needed",
                )
                return None

    def _read_value(self, value: str, server: str, purpose: str) -> str:
        reference = _WHOLE.fullmatch(value)
        return value if reference is None else self._find_env(reference[1], server, purpose)

    def _find_env(self, name: str, server: str, purpose: str = "bearer token") -> str:
        value = self._environment.get(name)
        if not value:
            state = "is not set" if value is None else "is empty"
            surroundings = self._surroundings
            message = f"MCP server {server!r}: {surroundings.variable.format(name=name)} of its {purpose} {state}"
            self._add_problem(message, hint=surroundings.remedy.format(name=name, value="..."), code="missing_variable")
            # Never sent: the problem ends the run before anything is connected.
            return ""
        self.secrets.add(value)
        return value

    def _add_problem(self, message: str, *, hint: str | None = None, code: str | None = None) -> None:
        self.problems.append(Problem(message=message, hint=hint, code=code))


def _form_text(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


# The judge of an MCPLab workspace: the agent of its library that its settings name.
# `.mcplab-app-settings.yaml` in the bundle root, key `evaluation_judge_agent_name`. Model, temperature and token limit are the agent's;
# its `system` text is not used, as in the original. A name that is not in the library is an error even if nothing is judged.

JUDGE_KEY: Final = "evaluation_judge_agent_name"


def judge_agent(suite: Suite) -> Entry | None:
    """Return the agent that the workspace of `suite` names as its judge, or None. Raises `InputError` if it is missing or cannot judge."""
    root = find_suite_root(suite)
    file = root / SETTINGS_FILE
    if not file.is_file():
        return None
    text = read_suite_text(file)
    reading = Reading(file=str(file), text=text)
    document = read_text(text, file=str(file), reading=reading)
    member = document.get(JUDGE_KEY) if document is not None and document.is_object else None
    agent_name = reading.require_text(member, JUDGE_KEY) if member is not None and member.value is not None else None
    reading.finish()
    name = (agent_name or "").strip()
    if not name:
        return None
    agents = load_library(root).agents
    agent = agents.get(name)
    if agent is None:
        known = f"{suggest_one(name, agents)}; known: {', '.join(agents) or 'none'}"
        raise InputError(f"{file}: {JUDGE_KEY} names the agent {name!r}, which is not in the library{known}")
    if agent.get("type") == "browser":
        raise InputError(f"{file}: the agent {name!r} drives a browser, and cannot judge")
    return agent


def mcplab_judge(
    suite: Suite, environment: Mapping[str, str], *, offline: bool = False, may_read: Callable[[Path], bool] = lambda file: True
) -> tuple[list[ChatModel], JudgeSettings, set[str]] | None:
    """Return model, settings and secrets of the judge that the workspace of `suite` names, or None if it names none.

    `may_read` decides which of its `.env` files count.
    """
    agent = judge_agent(suite)
    if agent is None:
        return None
    access = Access(variables_of(environment, find_suite_root(suite), may_read), tokens={}, offline=offline)
    model = access.model(agent)
    access.finish()
    assert model is not None  # else `finish` has raised
    changes = {key: agent[key] for key in ("temperature", "max_tokens") if agent.get(key) is not None}
    return [model], JudgeSettings(name=agent["id"], **changes), access.secrets
